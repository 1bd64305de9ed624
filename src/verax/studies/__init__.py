"""Studies: tasks x networks x seeds x methods x protocols, computed once and kept."""
