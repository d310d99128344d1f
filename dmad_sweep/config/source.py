"""Where Hydra finds options of the numeric axes that have no file."""

from typing import Any

from hydra._internal.core_plugins.file_config_source import FileConfigSource as HydraFileConfigSource
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, ListConfig, OmegaConf

from dmad_sweep.config.axes import AXES, looks_numeric, node_of, option_text, refused
from dmad_sweep.errors import ConfigError

SCHEME = "dmad-axes"


class AxisConfigSource(ConfigSource):
    """Serves `batch/3`, `resolution/512x768`, …: names that begin with a digit, of the axes alone.

    Answering for other names would hide files of the user's own --config-dir. Nothing is listed, so help
    and completion show the files.
    """

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        group, option = self._split(config_path)
        return ConfigResult(
            config=OmegaConf.create(node_of(group, option)),
            path=f"{SCHEME}://{config_path}",
            provider=self.provider,
            header={"package": None},
        )

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return config_path in AXES

    def is_config(self, config_path: str) -> bool:
        group, option = self._split(config_path)
        return group in AXES and looks_numeric(option)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        return []

    @staticmethod
    def _split(config_path: str) -> tuple[str, str]:
        group, _, option = config_path.rpartition("/")
        return group, option.removesuffix(".yaml")


class AxisSearchPath(SearchPathPlugin):
    """Puts the source behind all files, which win."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        # Hydra puts --config-dir before the first provider of this name; any other would hide files in it.
        search_path.append(provider="schema", path=f"{SCHEME}://")


class FileConfigSource(HydraFileConfigSource):
    """Reads YAML files as Hydra does, and takes `- batch: 3` in a defaults list for `- batch: "3"`.

    Hydra accepts only strings there. It has no hook between reading a file and checking its defaults, so
    this class takes the place of its namesake in the registry of sources, which goes by class name.
    """

    def load_config(self, config_path: str) -> ConfigResult:
        try:
            result = super().load_config(config_path)
        except (PermissionError, UnicodeDecodeError) as error:
            raise ConfigError(f"{config_path} in {self.path} cannot be read: {error}") from error
        defaults = result.config.get("defaults") if isinstance(result.config, DictConfig) else None
        if isinstance(defaults, ListConfig):
            for entry in defaults:
                _quote_numbers(entry)
        return result


def _quote_numbers(entry: Any) -> None:
    """`- precision: 32` too is an option that does or does not exist."""
    if not isinstance(entry, DictConfig):
        return
    for key, value in list(entry.items()):
        group = str(key).split(" ")[-1].lstrip("/").partition("@")[0]
        if isinstance(value, (bool, int, float)):
            entry[key] = option_text(value)
        elif group in AXES and isinstance(value, ListConfig):
            raise refused(group, str(list(value)))


def register() -> None:
    """Make the axes known to Hydra; again and again does no harm."""
    plugins = Plugins.instance()
    plugins.register(AxisConfigSource)
    plugins.register(AxisSearchPath)
    SourcesRegistry.instance().types["file"] = FileConfigSource
