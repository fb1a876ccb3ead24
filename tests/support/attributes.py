"""The public attributes of an object, compiled or not: a compiled class has no `__slots__`."""


def attributes_of(one: object) -> dict[str, object]:
    """Names that do not begin with an underscore and are no methods, with their values."""
    values = {name: getattr(one, name) for name in dir(one) if not name.startswith("_")}
    return {name: value for name, value in values.items() if not callable(value)}
