"""Reports: figures, the gallery and the page that a run is read from."""
