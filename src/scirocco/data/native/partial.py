"""A folder that is being written: it takes its name only when it is whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from scirocco.data.native.header import FILE_NAME, Header, is_data_folder, read_header
from scirocco.errors import InvalidValueError

_MARK = "being-written-by-scirocco"


class PartialFolder:
    """`FOLDER.partial`, renamed to `FOLDER` at the end; what an interrupted attempt left is removed by the next."""

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool):
        self.target = Path(path).expanduser().absolute()
        self.overwrite = overwrite
        self.path = self.target.with_name(self.target.name + ".partial")
        self._check_target()
        if self.path.exists():
            ours = self.path.is_dir() and ((self.path / _MARK).exists() or not any(self.path.iterdir()))
            if not ours:
                raise InvalidValueError(
                    f"{self.path} exists and was not left by an interrupted conversion. Move it away, or choose "
                    "another folder."
                )
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True)
        (self.path / _MARK).touch()

    def _check_target(self) -> None:
        if not self.target.exists():
            return
        if not self.overwrite:
            raise InvalidValueError(
                f"{self.target} exists already. Pass overwrite=True to replace it, or choose another folder."
            )
        if not is_data_folder(self.target):
            raise InvalidValueError(
                f"{self.target} is no scirocco data folder, so it is not deleted, even with overwrite=True. Choose "
                "another folder."
            )
        strangers = sorted(set(os.listdir(self.target)) - _own_files(self.target))
        if strangers:
            raise InvalidValueError(
                f"{self.target} also holds `{strangers[0]}`, which scirocco did not write, so it is not deleted. Move "
                "that away, or choose another folder."
            )

    def finish(self, header: Header) -> None:
        """Write the header, bring it to the disk, and put the folder in its place."""
        with open(self.path / FILE_NAME, "w", encoding="utf-8") as file:
            file.write(header.to_json())
            file.flush()
            os.fsync(file.fileno())
        (self.path / _MARK).unlink()
        self._check_target()
        old = self.target.with_name(self.target.name + ".replaced")
        if self.target.exists():
            if is_data_folder(old):
                shutil.rmtree(old)
            os.rename(self.target, old)
        os.rename(self.path, self.target)
        if is_data_folder(old):
            shutil.rmtree(old)

    def abandon(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.path, ignore_errors=True)


def _own_files(path: Path) -> set[str]:
    try:
        arrays = read_header(path).arrays
    except (
        InvalidValueError
    ):  # a damaged header names no files: then whatever is an .npy file is taken for ours
        return {FILE_NAME, *(file.name for file in path.glob("*.npy"))}
    return {FILE_NAME, *(entry.file for entry in arrays.values())}
