"""The range of an epoch on the wire: a Kubernetes int32."""

from inplace.common.bare.typed import Final

INT32_MAX: Final = 2**31 - 1
