"""Sources and sinks: table files, image files, tables larger than memory."""
