"""One module per page: which questions it asks, and what its template gets."""
