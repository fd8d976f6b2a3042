"""The dashboard: reads frozen snapshots of a cluster, and serves pages and an API. It writes nothing.

`host_map` draws a scheduler's state as arrays over hosts, `snapshot` holds what is shown at one moment, and
`hub` keeps the last moments and what changed between them. `views` leaves out what a user may not see,
`access` asks the cluster what that is, and `server` answers.
"""
