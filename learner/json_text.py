"""Text and JSON from outside: whatever is wrong with it is one kind of error. Imports no torch."""

import json
from typing import Any


def parse(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: no JSON, not UTF-8, nested too deeply, or a number with too many digits; one line says which.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"{error.msg} at {place}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start})") from error
    except ValueError as error:  # Python turns no text of thousands of digits into a number
        raise ValueError(f"a number is too long ({str(error).split(';')[0].lower()})") from error


def is_unicode(text: str) -> bool:
    """Whether every character is one: Python's texts may hold halves (surrogates), which no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
