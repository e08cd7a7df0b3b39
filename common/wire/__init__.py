"""Every text that the programs write for each other: names, encodings, the grammars of annotations and files."""
