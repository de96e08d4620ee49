"""Look whether built pages can be read without a network.

usage: check_offline.py FOLDER

Lists every script, style sheet, image, font or frame that a page or a style sheet below FOLDER would fetch from
another host, and every file of our own that is missing. Links that a reader may follow are not meant. Exits 1 when
there is one.
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse

FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "embed": "src",
    "object": "data",
}
URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Fetched(html.parser.HTMLParser):
    """Collects what a browser fetches by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the address of one element."""
        given = dict(attrs)
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "shortcut icon", "preconnect"):
            self.found.append(given.get("href") or "")
        elif tag in FETCHED and given.get(FETCHED[tag]):
            self.found.append(given[FETCHED[tag]] or "")


def addresses(file: pathlib.Path) -> list[str]:
    """Return what a page or a style sheet makes a browser fetch."""
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".css":
        return [one or other for one, other in URL.findall(text)]
    parser = Fetched()
    parser.feed(text)
    return parser.found


def main(folder: pathlib.Path) -> int:
    """Say what is fetched from elsewhere, and what is missing here."""
    wrong = []
    pages = (page for page in folder.rglob("*.html") if "_static" not in page.parts)  # there they are templates
    for file in sorted([*pages, *folder.rglob("*.css")]):
        for address in addresses(file):
            parts = urllib.parse.urlsplit(address)
            if parts.scheme == "data" or not (parts.path or parts.netloc):
                continue
            if parts.scheme or parts.netloc:
                wrong.append(f"{file.relative_to(folder)} fetches {address}")
            elif not (file.parent / urllib.parse.unquote(parts.path)).exists():
                wrong.append(f"{file.relative_to(folder)}: no {address}")
    print("\n".join(wrong) or f"{folder}: nothing is fetched from another host")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
