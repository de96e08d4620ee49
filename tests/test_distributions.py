"""The distributions of this repository go together: one version, one licence, the same versions of Python."""

import pathlib
import re
import tomllib

import numpy as np
import pytest

import scirocco
import scirocco_latent
from scirocco import cli

pytestmark = pytest.mark.unit

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = (".", "core", "latent", "papers")
each = pytest.mark.parametrize("folder", FOLDERS)


def declared(folder):
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]


@each
def test_each_requires_the_others_in_its_own_version(folder):
    ours = [line for line in declared(folder)["dependencies"] if line.startswith("scirocco")]
    assert {line.partition("==")[2] for line in ours} <= {scirocco.__version__}
    assert len(ours) == {".": 2, "core": 0, "latent": 1, "papers": 2}[folder]


@each
def test_each_has_the_licence(folder):
    assert declared(folder)["license-files"] == ["LICENSE"]
    assert (ROOT / folder / "LICENSE").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")


@each
def test_each_names_the_versions_of_python_that_are_tried(folder):
    """`make versions` tries them; the oldest is the one that is required."""
    of_python = "Programming Language :: Python :: "
    tried = re.findall(r'"python(3\.\d+)"', (ROOT / "tools" / "environments.py").read_text("utf-8"))
    lines = declared(folder)["classifiers"]
    named = [line.removeprefix(of_python) for line in lines if line.startswith(of_python)]
    versions = [name for name in named if name.startswith("3.")]
    assert declared(folder)["requires-python"] == f">={versions[0]}"
    assert versions == tried


@each
def test_each_has_the_addresses_that_are_stated_once(folder):
    assert declared(folder)["urls"] == declared(".")["urls"]
    assert {"Homepage", "Documentation", "Source", "Changelog", "Issues"} <= set(declared(folder)["urls"])


def test_the_changelog_and_the_citation_have_the_version():
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert changes.index("## [Unreleased]") < changes.index(f"## [{scirocco.__version__}]")
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"version: {scirocco.__version__}" in citation


def requirements(lines):
    """Names and oldest versions, of pip or conda."""
    return dict(re.fullmatch(r"([\w-]+)(?:\[.*\])?\s*[>=]=([\d.]+)", line).groups() for line in lines)


def test_the_conda_recipe_requires_what_the_distributions_do():
    recipe = (ROOT / "conda" / "meta.yaml").read_text("utf-8")
    assert f'set version = "{scirocco.__version__}"' in recipe
    assert f"home: {declared('.')['urls']['Homepage']}\n" in recipe
    parts = re.split(r"(?m)^  - name: ([\w-]+).*$", recipe.partition("outputs:")[2])[1:]
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        of = declared({"scirocco": ".", "scirocco-core": "core", "scirocco-latent": "latent"}[name])
        run = part.partition("      run:\n")[2].partition("    test:")[0]
        lines = re.findall(r"        - ([\w-]+ >=.*)", run)
        found = {line.replace("matplotlib-base", "matplotlib") for line in lines} - {"python >=3.11"}
        wanted = [line for line in of["dependencies"] if not line.startswith("scirocco")]
        if name == "scirocco":
            extras, core = re.search(r"\[(.*)\]", of["dependencies"][0])[1].split(","), declared("core")
            wanted = [line for extra in extras for line in core["optional-dependencies"][extra]]
        assert requirements(found) == requirements(wanted), name
        others = [line.split("=")[0] for line in of["dependencies"] if line.startswith("scirocco")]
        assert re.findall(r'pin_subpackage\("([\w-]+)"', run) == [other.partition("[")[0] for other in others]


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda p: p.name)
def test_workflows_run_what_developers_run(path):
    """Each command of a workflow is `.ci/run`, a target of the Makefile, or a line that checks a release."""
    yaml = pytest.importorskip("yaml", reason="no YAML reader is installed")
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"]
    targets = set(re.findall(r"(?m)^(\w+):", (ROOT / "Makefile").read_text("utf-8")))
    steps = [step for job in jobs.values() for step in job["steps"]]
    for step in steps:
        command = step.get("run", "")
        if command.startswith("make ") and "$" not in command:
            assert command.split()[1] in targets
        assert command.startswith(("make ", ".ci/run", "version=")) or "uses" in step
    assert all(re.search(r"@(v\d+|release/v1)$", step["uses"]) for step in steps if "uses" in step)


def test_numba_is_required_by_the_latent_models_alone():
    needs = {folder: " ".join(declared(folder)["dependencies"]) for folder in FOLDERS}
    assert [folder for folder in FOLDERS if "numba" in needs[folder]] == ["latent"]


def test_the_latent_models_are_those_that_the_core_says_to_install(monkeypatch, capsys):
    """Without them, each name and each group of commands says what to install."""
    from scirocco.models._core import registry

    ours = scirocco_latent.registry
    groups = {entry.group for entry in ours.MODELS.values()} - {""}
    for name in ours.MODELS:
        monkeypatch.delitem(registry.MODELS, name)
    for name in ours.FUNCTIONS:
        monkeypatch.delitem(registry.FUNCTIONS, name)
    for name in [*ours.MODELS, *ours.FUNCTIONS]:
        monkeypatch.delitem(scirocco.models.__dict__, name, raising=False)
        with pytest.raises(scirocco.errors.MissingExtraError, match="`pip install scirocco-latent`"):
            getattr(scirocco.models, name)
    for group in groups:
        with pytest.raises(SystemExit) as end:
            cli.main([group, "fit"])
        assert end.value.code == 2 and "`pip install scirocco-latent`" in capsys.readouterr().err
    assert set(dir(scirocco.models)).isdisjoint(ours.MODELS)


def test_a_run_of_a_model_that_is_not_installed_says_what_to_install(monkeypatch, tmp_path):
    from scirocco.models._core import registry

    counts = np.array([[3, 0, 1], [0, 2, 2], [1, 1, 0], [2, 0, 2]])
    scirocco.models.LDA(2, num_samples=2).fit(counts, num_steps=4, progress=False).save(tmp_path / "topics")
    monkeypatch.delitem(registry.MODELS, "LDA")
    with pytest.raises(scirocco.errors.MissingExtraError, match=r"LDA.* `pip install scirocco-latent`"):
        scirocco.models.load(tmp_path / "topics")
