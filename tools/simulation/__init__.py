"""The simulation of whole clusters: two broker groups, their clients, faults from a seed, checkers.

:mod:`plan` draws mode and faults from the seed, :mod:`site` has the servers, :mod:`load` the clients,
:mod:`operator` an operator's changes. :mod:`faults` carries out the plan, :mod:`history` records the run,
:mod:`watch` and :mod:`checks` judge it, with :mod:`again` (duplicates), :mod:`expiry`, :mod:`moves` and
:mod:`pops`; :mod:`forgotten` and :mod:`kept` compute the state that a broker group may have lost. :mod:`run`
combines them, and :mod:`shrink` drops the faults that do not matter. ``python -m tools.simulation`` is the
command. With ``--grpc`` all clients speak gRPC: :mod:`grpc_plan`, :mod:`grpc_load`, :mod:`grpc_checks`,
:mod:`grpc_run`.
"""
