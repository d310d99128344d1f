"""An application that composes and prints: what an entry point makes of a command line, without a trial."""

import json
import sys
from typing import Any

from dmad_sweep.config.entry import run, settings_of


def task(config: Any) -> None:
    settings = settings_of(config)
    seen = {
        "batch": settings.batch.size,
        "resolution": settings.resolution.label,
        "accumulation": settings.accumulation.steps,
        "precision": settings.precision.name,
        "sweep": settings.sweep.name,
        "outputs": settings.outputs,
    }
    print(json.dumps(seen) + "\n", end="", flush=True)  # in one write: workers share the stream


def main(arguments: list[str]) -> int:
    return run(task, arguments, extra_overrides=["sweep.name=filled"], sweeps=True)


if __name__ == "__main__":
    from probe import main as importable  # a worker process finds the task by its module

    code = importable(sys.argv[1:])
    print(json.dumps(sorted({"torch", "mlflow", "diffusers"} & set(sys.modules))), file=sys.stderr)
    sys.exit(code)
