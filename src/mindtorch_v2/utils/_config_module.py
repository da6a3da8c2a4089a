"""torch.utils._config_module: the class of modules of settings, for isinstance; settings here are plain attributes."""
from types import ModuleType


class ConfigModule(ModuleType):
    """A module whose attributes are settings; none of this package is one."""
