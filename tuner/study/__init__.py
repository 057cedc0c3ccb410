"""Study definitions: what is searched, on which server, under which load, for how long."""
