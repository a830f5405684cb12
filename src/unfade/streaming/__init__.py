"""Tables larger than memory: fitted on a sample that one pass over the file takes, recovered part by part into a folder."""

from unfade.io.large_tables import parse_memory
from unfade.streaming.fit import fit_stream
from unfade.streaming.recover import recover_stream

__all__ = ["fit_stream", "parse_memory", "recover_stream"]
