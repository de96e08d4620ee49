"""Every command of the command line, with good input and with a missing file; {…} are files of the fixture `place`."""

NOWHERE = "no/such/thing"

# command -> (good words, words with a missing file or name)
COMMANDS = {
    "demo": ("--out {root}/demo --seed 1", "--out {table}/below"),
    "sample": ("{config} --out {root}/sampled --chains 1 --seed 3", NOWHERE),
    "resume": ("{run} --num-samples 80", NOWHERE),
    "runs": ("{root}", NOWHERE),
    "watch": ("{run}", NOWHERE),
    "verify": ("{run}", NOWHERE),
    "diagnose": ("{run}", NOWHERE),
    "show": ("{states}", NOWHERE),
    "predict": ("{clusters} {table} --out {root}/any.csv", f"{{clusters}} {NOWHERE} --out {{root}}/none.csv"),
    "report": ("{run} --out {root}/run.html", NOWHERE),
    "reproduce": ("good --out {root}/figures", "godo"),
    "cite": ("SGLD", "SGDL"),
    "version": ("", None),
    "model fit": (
        "LinearRegression {table} --target high --out {root}/m --chains 2 --draws 200",
        f"LinearRegression {NOWHERE} --target high --out {{root}}/p",
    ),
    "data convert": ("{table} {root}/made", f"{NOWHERE} {{root}}/made-2"),
    "data info": ("{folder} --verify", NOWHERE),
    "data list": ("", None),
    "topics fit": (
        "{text} --out {root}/t --topics 2 --min-documents 1 --epochs 4 --held-out 0"
        " --batch-size 20 --threads 1",  # as the fixture `fitted`: nothing is compiled twice
        f"{NOWHERE} --out {{root}}/u",
    ),
    "topics show": ("{topics}", NOWHERE),
    "topics transform": ("{topics} {text} --out {root}/shares.csv", f"{{topics}} {NOWHERE} --out {{root}}/s.csv"),
    "topics compare": ("{topics} {topics}", f"{{topics}} {NOWHERE}"),
    "cluster fit": ("{table} --out {root}/c --epochs 4 --chains 1 --threads 1", f"{NOWHERE} --out {{root}}/d"),
    "cluster show": ("{clusters}", NOWHERE),
    "cluster predict": ("{clusters} {table} --out {root}/labels.csv", f"{{clusters}} {NOWHERE} --out {{root}}/no.csv"),
    "hmm fit": ("{table} --out {root}/h --epochs 20 --chains 1 --threads 1", f"{NOWHERE} --out {{root}}/i"),
    "hmm show": ("{states}", NOWHERE),
    "hmm predict": ("{states} {table} --out {root}/visits.csv", f"{{states}} {NOWHERE} --out {{root}}/v.csv"),
    "hmm forecast": ("{states} --steps 2", NOWHERE),
    "network fit": ("{edges} --out {root}/n --epochs 20 --chains 1 --mixed", f"{NOWHERE} --out {{root}}/o"),
    "network show": ("{blocks} --nodes {root}/nodes.csv", NOWHERE),
    "network predict": ("{blocks} {edges} --out {root}/links.csv", f"{NOWHERE} {{edges}} --out {{root}}/l.csv"),
}
FITTED = ("topics show", "topics transform", "topics compare", "cluster show", "cluster predict", "hmm show")
FITTED += ("show", "predict")
FITTED += ("hmm predict", "hmm forecast", "network show", "network predict")
NUMBA = (*FITTED, "topics fit", "cluster fit", "hmm fit", "network fit")
# 60 draws are too few, and `diagnose` says so
GOOD_STATUS = dict.fromkeys(COMMANDS, 0) | {"diagnose": 1}


def words_of(command, text, place):
    """The words of a command line."""
    names = ("root", "config", "table", "text", "run", "topics", "clusters", "states", "folder", "edges", "blocks")
    return [*command.split(), *text.format(**{name: getattr(place, name) for name in names}).split()]


def wrong_option(command):
    """An option with a slip, and the one that was meant."""
    from typer.main import get_command

    from scirocco import cli

    found = get_command(cli.app)
    for name in command.split():
        found = found.commands[name]
    options = [o for parameter in found.params for o in parameter.opts if o.startswith("--")] or ["--help"]
    right = options[-1]
    return right[:-1] + ("x" if right[-1] != "x" else "y"), right
