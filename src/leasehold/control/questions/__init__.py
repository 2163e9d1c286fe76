"""Questions that people ask about the World, with answers that any client can print.

Each module answers one question and returns a record of `answers`. `shell.queries.query` calls it
for a caller, and writes the record as JSON with `question` and `now` in front. All numbers come
from `core` and `control`: no number is computed in two places, and a client does no arithmetic.

The fields below are stable: fields are added, never renamed or given another meaning. `a{b c}` is
one record with the fields b and c, `a[b c]` a list of such records.

- GPU-time is exact in `gpuMs` (GPU-milliseconds) and readable in `gpuHours`.
- Instants are RFC 3339 in UTC; null means that the event has not happened.
- A run is `namespace/name`, an envelope `namespace/budget/envelope`.

    runs          total, items: namespace name owner flavor phase reason message attempt created
                  started ended width{min max desired allocated spares pending}
                  funding{owned shared borrowed} payers[envelope gpus] nodes
                  reservation{name state starts confidence} gpuMs gpuHours
    plan          run owner verdict (StartsNow Reserved Blocked Waits Refused Running Over) reason
                  sentences start confidence deficit payers[envelope payerOwner relation gpus]
                  places[group node domain gpus spare]
                  cuts{spares shrunk[run groups] lottery domains} odds[run percent] remedies walk
                  notes
    cover         run owner when (recorded now) walks[place covered reason remedy shortBy steps];
                  a step of steps or walk: envelope relation taken verdict heldBack limit used says
    explain       run owner phase reason message sentences
                  refusal{reason subject asked shortBy timeMayHelp remedy} reservation walk places
                  payers[envelope payerOwner relation gpus gpuMs gpuHours]
                  cuts[at gpus reasons groups attempt leases resolution cause subject beneficiary
                  deficit odds seed conflictSet[owner bundles] draws[owner bundle gpus]
                  sentences] attempts[group attempt started ended outcome cause] remedies
    who-pays      run owner phase gpus gpuMs gpuHours shares{owned shared borrowed}
                  payers[envelope payerOwner relation gpus gpuMs gpuHours]
    sponsors      run owner allowBorrow maxBorrowGPUs
                  items: owner named gpus gpuMs gpuHours envelopes[envelope lends says]
    budgets       form (usage balance tree)
      usage       items: envelope owner flavor region cluster concurrency used shared spare lent
                  lentTo[owner gpus] free claimed overdrawn overdrawnSince state opens until;
                  owners: owner gpus owned shared borrowed lent
      balance     items: envelope owner flavor region cluster limit used committed left lendingLimit
                  lent opens until paysUntil
      tree        items: owner depth parents envelopes own below {concurrency used lent gpuMs
                  gpuHours}
    burn          items: envelope points[at gpuMs gpuHours]
    leases        total, items: lease run owner attempt group index pod node slots gpus role payer
                  payerOwner relation opened start began saved end closed closure cause
                  ending{reason deadline} gpuMs gpuHours
    drain         node draining askedBy gpus,
                  items: run group gpus way (swap shrink requeue wait spare end)
                  state (stays going gone) says
    reservations  items: namespace name run state starts startsInMs confidence deficit reason
                  message payers domains nodes releases[lease at] remedies odds[run percent]
                  announced since submitted passedBy[run gpus started ends says]
    pods          run, items: namespace name phase reason exitCode message node slots gpus group
                  index attempt started finished leases
    report        by from to owner, items and total: (owner payer run node day week or month) leases
                  gpuMs gpuHours uses{work spare starting failed cut}, and by owner paidGpuMs
                  paidGpuHours
    fleet         at earliest, total and flavors[flavor nodes gpus paid spare filler foreign idle
                  closed broken] holders[run owner payer payerOwner relation role]
                  nodes[node flavor domain gpus state says cells]
    attention     items: kind (Node Budget Run Reservation) subject reason says remedy runbook since
    resolutions   total, items: name batch at cause subject beneficiary flavor domains envelope
                  deficit compared[domain lottery shrink spares] spares[lease gpus]
                  shrunk[run group gpus] drawn[owner bundle gpus]
                  returned[kind name gpus] victims runs record digest
    widths        run until, items: at active spare
    audit         ok problems
    ledger-head   seq digest epoch instant openLeases leases
"""
