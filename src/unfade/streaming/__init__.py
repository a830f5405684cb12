"""Tables larger than memory: fit on a sample that one pass over the file takes, recover part by part into a folder."""

from unfade.streaming.parts import recover_stream
from unfade.streaming.sampling import fit_stream
from unfade.streaming.sources import parse_memory

__all__ = ["fit_stream", "parse_memory", "recover_stream"]
