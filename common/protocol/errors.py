"""The protocol's errors, by whose fault they are (after h11's LocalProtocolError and RemoteProtocolError)."""


class RemoteProtocolError(Exception):
    """A peer broke the protocol (an annotation that is no int32, an epoch from the future). Our state is unchanged."""


class InvariantError(Exception):
    """We broke the protocol: a bug in this project. Never caught."""
