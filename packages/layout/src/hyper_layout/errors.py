"""The one error family of layout arithmetic."""


class LayoutError(ValueError):
    """A mesh, a placement or a layout that cannot be, or cannot be used here.

    A ``ValueError``, so that callers who know nothing of layouts catch it as bad input.
    """
