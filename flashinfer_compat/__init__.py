"""One import, one contract, every supported FlashInfer: ``import flashinfer_compat as flashinfer``.

Names are those of the newest supported FlashInfer. Where the installed release already has the contract's shape, a name
here *is* FlashInfer's object; FlashInfer is imported with the first name that needs it, never by this import.
"""

import typing as _typing

from . import namespace as _namespace
from . import selection as _selection
from .errors import (
    CompatError,
    CompatWarning,
    FeatureUnavailable,
    InvalidArgument,
    InvalidPlan,
    RoundError,
    UnsupportedArgument,
    UnsupportedCombination,
    UnsupportedRelease,
)
from .support import Support

_selected = _selection.select()
_namespace.install(
    _selected,
    own={
        **dict.fromkeys(("explain", "report", "require", "supports"), "features"),
        **dict.fromkeys(("patch", "unpatch"), "patching"),
        "include_dirs": "headers",
        "use_reference": "namespace",
    },
)

#: The installed FlashInfer's version string, None where there is none.
flashinfer_version: str | None = _selected.installed

if _typing.TYPE_CHECKING:
    from .features import explain, report, require, supports
    from .headers import include_dirs
    from .namespace import use_reference
    from .patching import patch, unpatch

    def __getattr__(name: str) -> _typing.Any: ...  # FlashInfer's own names, through `namespace.MirroredModule`
