"""One simulation with everything: two groups of brokers, their clients, faults from a seed, checkers.

:mod:`plan` draws what happens, :mod:`site` has the servers, :mod:`load` the clients, :mod:`operator`
changes things, :mod:`faults` does what the plan says, :mod:`history` records, :mod:`watch` and :mod:`checks`
judge, with :mod:`again` (what comes twice), :mod:`expiry`, :mod:`moves` and :mod:`pops`; :mod:`forgotten` and
:mod:`kept` tell them what a group may not know or have any more. :mod:`run` puts them together and
:mod:`shrink` drops the faults that do not matter. ``python -m tools.simulation`` is its command.
With ``--grpc`` clients speak gRPC: :mod:`grpc_plan`, :mod:`grpc_load`, :mod:`grpc_checks`, :mod:`grpc_run`.
"""
