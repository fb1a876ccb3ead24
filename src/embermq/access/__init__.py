"""Users and rights from files (docs/access.md): `FileAccess`, an `Access` of `embermq.broker.access`."""
