__version__: str
DEBUG_BUILD: bool
