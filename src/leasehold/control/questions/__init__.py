"""Questions people ask of the World, answered as plain data that any client can print.

Each module answers one question and returns a dict of JSON values; `shell.query` asks for it on
behalf of a caller and adds `now`. Numbers come from `core` and `control`: nothing is counted twice,
and a client does no arithmetic. GPU-time is given exactly (`gpuMs`) and in words (`gpuHours`);
instants are RFC 3339 in UTC; a run is `namespace/name`, an envelope `namespace/budget/envelope`.
"""
