"""What a person sees of a sweep; here, where it prints: light to import."""

from rich.console import Console as RichConsole


def progress_console() -> RichConsole:
    """Return where a sweep prints its progress: lines on stderr, also in a notebook."""
    return RichConsole(stderr=True, force_jupyter=False, highlight=False, soft_wrap=True)
