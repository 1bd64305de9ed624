"""Papers done again: their numbers as data, their statements as claims that code decides."""
