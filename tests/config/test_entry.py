"""What a command line and a person's own files are composed to, and the words in which they are refused."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from config.apps import probe

from dmad_sweep.config.entry import run
from dmad_sweep.config.project import conf_folder
from dmad_sweep.sweep.current import forget_sweep

ROOT = Path(__file__).parents[2]
POSITIVE = "give a positive integer, for instance batch=3"
SIZE = "give a size in pixels, 640, or height x width, 512x768, each a multiple of 8"
PRECISIONS = "bf16, bf16_pure, fp16, fp32, tf32"


@dataclass
class Person:
    """At a project and a --config-dir whose names need quoting everywhere."""

    project: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def conf(self) -> Path:
        return self.project / "my 'conf' = ü"

    def writes(self, name: str, text: str) -> None:
        path = self.conf / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def configures(self, text: str, defaults: str = "") -> list[str]:
        """The flags that choose a primary configuration of the person's own."""
        self.writes("mine.yaml", f"defaults:\n  - config\n{defaults}  - _self_\n{text}")
        return ["--config-dir", str(self.conf), "--config-name", "mine"]

    def types(self, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        """Exit code, what each task saw, standard error."""
        code = probe.main([*arguments, "hydra/launcher=basic"])
        out, err = self.capsys.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    def sees(self, key: str, *arguments: str) -> list[Any]:
        code, seen, err = self.types(*arguments)
        assert (code, err) == (0, "")
        return [one[key] for one in seen]

    def is_refused(self, code: int, message: str, *arguments: str) -> None:
        assert self.types(*arguments) == (code, [], f"dmad_sweep: {message}\n")
        assert not (self.project / "outputs").exists()
        assert not (self.project / "multirun").exists()


@pytest.fixture
def person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Person]:
    project = tmp_path / "a 'project' = \"ü\""
    project.mkdir()
    (project / "pyproject.toml").touch()
    monkeypatch.chdir(project)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    monkeypatch.delenv("DMAD_OUTPUTS", raising=False)
    yield Person(project, capsys)
    forget_sweep()


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        (["batch=3"], [3]),
        (["-m", "batch=1,2,4"], [1, 2, 4]),
        (["-m", "batch=range(1,5)"], [1, 2, 3, 4]),
        (["-m", "batch=choice(1,3)"], [1, 3]),
        (["-m", "batch=glob(1*)"], [1, 16]),
        (["-m", "hydra/sweeper=basic", "batch=3,5"], [3, 5]),
        (["batch=3", "-m", "accumulation=7,9"], [3, 3]),
        (["batch.size=3"], [3]),
        (["++batch.size=3"], [3]),
        (["~batch"], [1]),
    ],
)
def test_any_number_is_an_option(arguments: list[str], sizes: list[int], person: Person) -> None:
    assert person.sees("batch", *arguments) == sizes


def test_any_size_is_an_option(person: Person) -> None:
    assert person.sees("resolution", "-m", "resolution=512x768,640,96x104") == ["512x768", "640", "96x104"]


@pytest.mark.parametrize("flag", ["", "/", "optional "])
def test_numbers_in_a_defaults_list_need_no_quotes(flag: str, person: Person) -> None:
    person.writes("axes.yaml", f"defaults:\n  - {flag}batch: 3\n  - {flag}resolution: 512x768\n")
    person.writes(
        "mine.yaml",
        "defaults:\n  - schema\n  - axes\n  - accumulation: 7\n  - precision: bf16\n"
        "  - override hydra/job_logging: none\n  - override hydra/hydra_logging: none\n",
    )
    code, seen, _ = person.types("--config-dir", str(person.conf), "--config-name", "mine")
    assert code == 0
    assert [(one["batch"], one["resolution"], one["accumulation"]) for one in seen] == [(3, "512x768", 7)]


def test_defaults_are_overridden_by_numbers_and_these_by_the_command_line(person: Person) -> None:
    defaults = "  - override batch: 3\n  - override /resolution: 640\n  - override accumulation: 7\n"
    own = person.configures("", defaults)
    assert person.types(*own)[1] == [
        {
            "batch": 3,
            "resolution": "640",
            "accumulation": 7,
            "precision": "bf16",
            "sweep": "filled",
            "outputs": str(person.project / "outputs"),
        }
    ]
    assert person.sees("batch", "-m", *own, "batch=5,6") == [5, 6]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ("batch: 1,3\n      resolution: 512x768,640",
         [(1, "512x768"), (1, "640"), (3, "512x768"), (3, "640")]),
        ("batch: '1,3'", [(1, "512"), (3, "512")]),
        ("batch: 3\n      resolution: 640", [(3, "640")]),
        ("batch: range(1,3)", [(1, "512"), (2, "512")]),
        ("batch: glob(1*)\n      precision: bf16", [(1, "512"), (16, "512")]),
    ],
)  # fmt: skip
def test_sweeps_of_a_file(params: str, expected: list[tuple[int, str]], person: Person) -> None:
    own = person.configures(f"hydra:\n  sweeper:\n    params:\n      {params}\n")
    _, seen, _ = person.types("-m", *own)
    assert [(one["batch"], one["resolution"]) for one in seen] == expected


def test_options_of_a_persons_own(person: Person) -> None:
    person.writes("batch/two.yaml", "size: 2\n")
    person.writes("resolution/720p.yaml", "height: 720\nwidth: 1280\n")
    own = ["--config-dir", str(person.conf)]
    assert person.sees("batch", "-m", *own, "batch=two,7") == [2, 7]
    assert person.sees("batch", "-m", *own, "batch=glob(*)") == [1, 16, 2, 4, 8, 2]
    assert person.sees("resolution", *own, "resolution=720p") == ["720x1280"]


def test_a_refusal_names_options_of_a_persons_own(person: Person) -> None:
    person.writes("batch/two.yaml", "size: 2\n")
    own = ["--config-dir", str(person.conf)]
    person.is_refused(2, f"batch=three is not allowed: {POSITIVE}, or choose two", *own, "batch=three")


def test_a_persons_file_of_a_number_wins(person: Person) -> None:
    person.writes("batch/3.yaml", "size: 33\n")
    assert person.sees("batch", "--config-dir", str(person.conf), "batch=3") == [33]


def test_options_found_through_hydras_own_search_path(person: Person, tmp_path: Path) -> None:
    (tmp_path / "plain" / "batch").mkdir(parents=True)
    (tmp_path / "plain" / "batch" / "huge.yaml").write_text("size: 100\n")
    assert person.sees("batch", f"hydra.searchpath=[file://{tmp_path}/plain]", "batch=huge") == [100]


REFUSED = [
    (["batch=0"], 2, f"batch=0 is not allowed: {POSITIVE}"),
    (["batch=-1"], 2, f"batch=-1 is not allowed: {POSITIVE}"),
    (["batch=two"], 2, f"batch=two is not allowed: {POSITIVE}"),
    (["batch=1.5"], 2, f"batch=1.5 is not allowed: {POSITIVE}"),
    (["batch=null"], 2, f"batch=null is not allowed: {POSITIVE}"),
    (["batch=true"], 2, f"batch=true is not allowed: {POSITIVE}"),
    (["batch=[1,2]"], 2, f"batch=[1, 2] is not allowed: {POSITIVE}"),
    (["batch=01"], 2, f"batch=01 is not allowed: {POSITIVE}"),
    (["batch="], 2, f"batch= is not allowed: {POSITIVE}"),
    (["batch=1,,2"], 2, f"batch=1,,2 is not allowed: {POSITIVE}"),
    (["-m", "batch=1,0"], 2, f"batch=0 is not allowed: {POSITIVE}"),
    (["-m", "batch=1,two"], 2, f"batch=two is not allowed: {POSITIVE}"),
    (["-m", "batch=interval(1,3)"], 2, f"batch=interval(1,3) is not allowed: {POSITIVE}"),
    (
        ["accumulation=0"],
        2,
        "accumulation=0 is not allowed: give a positive integer, for instance accumulation=4",
    ),
    (["resolution=100"], 2, "resolution=100 is not allowed: use a multiple of 8, such as 96 or 104"),
    (["resolution=0x5"], 2, f"resolution=0x5 is not allowed: {SIZE}"),
    (["resolution=512x"], 2, f"resolution=512x is not allowed: {SIZE}"),
    (["resolution=wide"], 2, f"resolution=wide is not allowed: {SIZE}"),
    (["precision=fp99"], 1, f"Could not find 'precision/fp99'; choose one of {PRECISIONS}"),
    (["precision=32"], 1, f"Could not find 'precision/32'; choose one of {PRECISIONS}"),
    (["precision=null"], 1, f"Could not find 'precision/null'; choose one of {PRECISIONS}"),
    (["precision=[1]"], 1, f"Could not find 'precision/[1]'; choose one of {PRECISIONS}"),
    (["-m", "precision=fp32,16"], 1, f"Could not find 'precision/16'; choose one of {PRECISIONS}"),
    (["~batch=3"], 1, "Could not delete 'batch=3'. No match in the defaults list"),
    (["batch@foo=3"], 1, "Could not override 'batch@foo': Did you mean to override batch?"),
    (["+batch=3"], 1, "Multiple values for batch. To override a value use 'override batch: 3'"),
    (["bacth=2"], 1, "Could not override 'bacth': Key 'bacth' not in 'Config'. Did you mean batch?"),
    (["+bacth=2"], 2, "bacth: Key 'bacth' not in 'Config'. Did you mean batch?"),
    (
        ["schedule.measurd_cycles=3"],
        1,
        "Could not override 'schedule.measurd_cycles': Key 'measurd_cycles' not in 'Schedule'. "
        "Did you mean schedule.measured_cycles?",
    ),
    (
        ["schedule.measured_cycles=abc"],
        1,
        "Error merging override schedule.measured_cycles=abc: "
        "Value 'abc' of type 'str' could not be converted to Integer",
    ),
    (["batch.size=0"], 2, "batch.size=0 is not allowed: give a number of at least 1"),
    (["batch.size=${nothing}"], 2, "batch.size: Interpolation key 'nothing' not found"),
    (["seed=[1"], 1, "seed=[1 cannot be read; characters of Hydra's grammar need quotes: \"seed='[1'\""),
    (["batch=1,2"], 2, "batch='1','2' gives several values: add -m to run one trial for each of them"),
    (["--config-dir", "absent"], 1, "Additional config directory '{project}/absent' not found"),
    (
        ["--config-name", "absent"],
        1,
        "Cannot find primary config 'absent'. Check that it's in your config search path",
    ),
    (["--resolve"], 1, "The --resolve flag can only be used in conjunction with --cfg or --help"),
    (
        ["-m", "--cfg", "job"],
        1,
        "Only one of --run, --multirun, --cfg, --info and --shell_completion can be specified",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "message"), REFUSED, ids=lambda value: str(value))
def test_a_refusal_is_a_line(arguments: list[str], code: int, message: str, person: Person) -> None:
    person.is_refused(code, message.replace("{project}", str(person.project)), *arguments)


REFUSED_DEFAULTS = [
    ("override batch: 0", 2, f"batch=0 is not allowed: {POSITIVE}"),
    ("override batch: 1.5", 2, f"batch=1.5 is not allowed: {POSITIVE}"),
    ("override batch: true", 2, f"batch=true is not allowed: {POSITIVE}"),
    ("override batch: [1, 2]", 2, f"batch=[1, 2] is not allowed: {POSITIVE}"),
    ("override batch: three", 2, f"batch=three is not allowed: {POSITIVE}"),
    ("override resolution: 100", 2, "resolution=100 is not allowed: use a multiple of 8, such as 96 or 104"),
    ("override precision: 32", 1, f"Could not find 'precision/32'; choose one of {PRECISIONS}"),
    (
        "override checkpointing: off",
        1,
        "Could not find 'checkpointing/false'; choose one of all, none, student, trainable",
    ),
    (
        "override bacth: 3",
        1,
        "In 'mine': Could not override 'bacth'. No match in the defaults list. Did you mean batch?",
    ),
    ("{a: b, c: d}", 1, "In mine: Too many keys in default item {'a': 'b', 'c': 'd'}"),
]


@pytest.mark.parametrize(("entry", "code", "message"), REFUSED_DEFAULTS)
def test_a_refusal_of_a_defaults_list(entry: str, code: int, message: str, person: Person) -> None:
    person.is_refused(code, message, *person.configures("", f"  - {entry}\n"))


REFUSED_FILES = [
    (
        "schedule: {measurd_cycles: 3}",
        1,
        "In 'mine': schedule.measurd_cycles: Key 'measurd_cycles' not in 'Schedule'. "
        "Did you mean schedule.measured_cycles?",
    ),
    (
        "schedule: {measured_cycles: abc}",
        1,
        "In 'mine': schedule.measured_cycles: Value 'abc' of type 'str' could not be converted to Integer",
    ),
    ("batch: 4", 1, "In 'mine': Merge error: int is not a subclass of Batch. value: 4"),
    ("batch: {size: 0}", 2, "batch.size=0 is not allowed: give a number of at least 1"),
    ("hydra: {sweeper: {params: {batch: '1,0'}}}", 2, f"batch=0 is not allowed: {POSITIVE}"),
    ("hydra: {sweeper: {params: {batch: [1, 2]}}}", 2, f"batch=[1, 2] is not allowed: {POSITIVE}"),
    (
        "hydra: {sweeper: {params: {bacth: '1,2'}}}",
        1,
        "Could not override 'bacth': Key 'bacth' not in 'Config'. Did you mean batch?",
    ),
]


@pytest.mark.parametrize(("text", "code", "message"), REFUSED_FILES)
def test_a_refusal_of_a_file(text: str, code: int, message: str, person: Person) -> None:
    person.is_refused(code, message, "-m", *person.configures(f"{text}\n"))


def test_a_file_that_is_no_text_is_named(person: Person) -> None:
    person.conf.mkdir()
    (person.conf / "batch").mkdir()
    (person.conf / "batch" / "odd.yaml").write_bytes(b"# \xe9\nsize: 3\n")
    code, seen, err = person.types("--config-dir", str(person.conf), "batch=odd")
    assert (code, seen) == (2, [])
    assert err.startswith(
        f"dmad_sweep: batch/odd in {person.conf} cannot be read: 'utf-8' codec can't decode"
    )
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ([], "filled"),
        (["sweep.name=null"], "filled"),
        (["sweep.name=typed"], "typed"),
        (["++sweep.name=typed"], "typed"),
        (["sweep={name: typed}"], "typed"),
    ],
)
def test_a_sweep_is_named_for_all_its_combinations(arguments: list[str], name: str, person: Person) -> None:
    assert person.sees("sweep", "-m", "batch=1,2", *arguments) == [name, name]


def test_a_name_in_a_file_counts(person: Person) -> None:
    own = person.configures("sweep: {name: nightly}\n")
    assert person.sees("sweep", *own) == ["nightly"]
    assert person.sees("sweep", *own, "sweep.name=typed") == ["typed"]


def test_outputs_are_absolute_and_of_the_project(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = person.project / "deep"
    deep.mkdir()
    monkeypatch.chdir(deep)
    assert person.sees("outputs") == [str(person.project / "outputs")]
    assert person.sees("outputs", "outputs=there") == [str(deep / "there")]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--hydra-help"],
        ["--cfg", "job", "--resolve", "batch=3"],
        ["--info", "defaults", "batch=3"],
        ["batch=3", "--info"],
    ],
)
def test_what_only_shows_starts_and_leaves_nothing(arguments: list[str], person: Person) -> None:
    done = in_a_process(*arguments, cwd=person.project)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert "filled" not in done.stdout
    assert list(person.project.iterdir()) == [person.project / "pyproject.toml"]


def test_a_given_number_is_shown_and_not_listed(person: Person) -> None:
    assert probe.main(["--cfg", "job", "--resolve", "batch=3", "-p", "batch"]) == 0
    assert person.capsys.readouterr().out == "# @package batch\nsize: 3\n"
    assert probe.main(["--help", "batch=3"]) == 0
    assert "\nbatch: 1, 16, 2, 4, 8\n" in person.capsys.readouterr().out


@pytest.mark.parametrize("sweeps", [False, True])
@pytest.mark.parametrize(
    ("leaving", "code"), [(KeyboardInterrupt(), 130), (SystemExit(7), 7), (SystemExit(), 0)]
)
def test_leaving_keeps_its_code(leaving: BaseException, code: int, sweeps: bool, person: Person) -> None:
    def task(config: Any) -> None:
        raise leaving

    assert run(task, ["sweep.name=x", "hydra/launcher=basic"], sweeps=sweeps) == code


@pytest.mark.parametrize("sweeps", [False, True])
def test_a_fault_of_the_program_keeps_its_traceback(sweeps: bool, person: Person) -> None:
    def task(config: Any) -> None:
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        run(task, ["sweep.name=x", "hydra/launcher=basic"], sweeps=sweeps)
    assert "HYDRA_FULL_ERROR" not in os.environ


def test_who_asks_for_tracebacks_gets_them(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    for arguments in (["batch=0"], ["precision=fp99"], person.configures("", "  - override batch: 0\n")):
        with pytest.raises(Exception, match=r"is not allowed|Could not find"):
            probe.main([*arguments, "hydra/launcher=basic"])
    assert os.environ["HYDRA_FULL_ERROR"] == "1"


def in_a_process(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, probe.__file__, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )


def test_worker_processes_compose_the_same(person: Person) -> None:
    arguments = ["-m", "hydra/launcher=joblib", "batch=3,5", "resolution=96x104"]
    done = in_a_process(*arguments, cwd=person.project)
    assert done.returncode == 0, done.stderr
    seen = sorted(json.loads(line)["batch"] for line in done.stdout.splitlines())
    assert seen == [3, 5]
    assert {json.loads(line)["sweep"] for line in done.stdout.splitlines()} == {"filled"}


@pytest.mark.parametrize("arguments", [["--help"], ["batch=0"], ["batch=two"], ["bacth=2"]])
def test_neither_torch_nor_mlflow_is_loaded_to_help_or_refuse(arguments: list[str], person: Person) -> None:
    assert in_a_process(*arguments, cwd=person.project).stderr.splitlines()[-1] == "[]"


def test_an_installed_wheel_reads_its_own_configuration(person: Person, tmp_path: Path) -> None:
    site = tmp_path / "site"
    for package in ("dmad_sweep", "hydra_plugins"):
        shutil.copytree(ROOT / package, site / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(conf_folder(), site / "dmad_sweep" / "conf")
    (site / "dmad_sweep" / "conf" / "batch" / "3.yaml").write_text("size: 333\n")
    done = in_a_process("batch=3", "hydra/launcher=basic", cwd=person.project, PYTHONPATH=str(site))
    assert json.loads(done.stdout)["batch"] == 333, done.stderr
