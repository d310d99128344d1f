"""Where the configuration tree is."""

from pathlib import Path

import dmad_sweep


def conf_folder() -> Path:
    """The one conf/ tree: beside the package in a checkout or an editable install, inside it in a wheel.

    An editable install also leaves a copy in site-packages that goes stale; it is never read, because the
    package itself is not there.
    """
    package = Path(dmad_sweep.__file__).resolve().parent
    for folder in (package.parent / "conf", package / "conf"):
        if (folder / "config.yaml").is_file() and (folder / "batch").is_dir():
            return folder
    raise FileNotFoundError(f"no conf/ beside or inside {package}: the installation is incomplete")
