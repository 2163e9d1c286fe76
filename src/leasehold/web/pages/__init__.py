"""One module for each page: which questions it asks, and what its template is given."""
