------------------------------- MODULE Tenure -------------------------------
(* The protocol of src/leasehold/shell/leadership/tenure.py: one record, conditional      *)
(* writes, clocks that nobody compares.                                        *)
(*                                                                             *)
(* Time is counted in ages. A clock that runs fast or slow is folded into two  *)
(* constants: Hold is the longest real time for which a holder may believe     *)
(* (its clock being slow), Take the shortest for which a contender waits (its  *)
(* clock being fast). The margins of the configuration say Hold <= Take.       *)
(*                                                                             *)
(* Versions are not numbers: whoever read or wrote the record has a flag that  *)
(* says whether it is still as it was then (`cur`). A conditional write        *)
(* succeeds where the flag is up, and takes down everybody else's. So          *)
(* histories of any length are covered, with a finite number of states; only   *)
(* where MaxEpoch > 0 the epochs are numbered (`count`), and bounded.          *)
(*                                                                             *)
(* A process may stand still for any time (it just takes no step), crash at    *)
(* any moment (it comes back as somebody else), and its requests and answers   *)
(* may be late or lost; a request of the dead may still arrive.                *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS Procs, Hold, Take, MaxEpoch, Variant

(* Variant: "right", or the mistake that is made:                              *)
(*   "wall"      take over when the record's own instant looks old             *)
(*   "late"      count from when the answer came                               *)
(*   "expired"   renew what has expired                                        *)
(*   "stranger"  release without looking whose it is                           *)
(*   "blind"     renew without the condition                                   *)
(*   "short"     take over after Hold - 1                                      *)
(*   "after"     believe until the release is answered                         *)
(*   "adopt"     after a lost answer, adopt whatever names us                  *)
(*   "forget"    a release deletes the record, and its epoch with it           *)

VARIABLES rec,   \* the record: who holds it, how old the write is, its epoch
          bel,   \* what each process believes
          obs,   \* what each process has seen, and since when
          act,   \* what each process has asked for, and where that is
          stray  \* a request on its way for whose answer nobody waits

vars == <<rec, bel, obs, act, stray>>
Sym == Permutations(Procs)

Free == "free"
Dead == "dead"
Nobody == "nobody"
Skew == 2  \* by which wall clocks may differ, where somebody trusts them

Nothing == [on |-> FALSE, age |-> 0, cur |-> FALSE]
Unseen == [seen |-> FALSE, free |-> FALSE, cur |-> FALSE, age |-> 0]
(* at: "out" on its way, "back" answered, "lost" neither; ok: it succeeded;    *)
(* mine: the record is what this very request wrote.                           *)
Idle == [kind |-> "none", at |-> "lost", cur |-> FALSE, ok |-> FALSE, mine |-> FALSE, age |-> 0]
NoStray == [kind |-> "none", who |-> Free]

Cap(x, most) == IF x > most THEN most ELSE x
Valid(n) == bel[n].on /\ bel[n].age < Hold
IsIdle(n) == act[n].kind = "none"

Init == /\ rec = [holder |-> Free, age |-> 0, count |-> 0]
        /\ bel = [n \in Procs |-> Nothing]
        /\ obs = [n \in Procs |-> Unseen]
        /\ act = [n \in Procs |-> Idle]
        /\ stray = NoStray

(* One unit of real time passes for everything at once.                        *)
Older(r, most) == [r EXCEPT !.age = Cap(r.age + 1, most)]
Tick == /\ rec' = IF Variant = "wall" THEN Older(rec, Take) ELSE rec
        /\ bel' = [n \in Procs |-> IF bel[n].on THEN Older(bel[n], Hold) ELSE bel[n]]
        /\ obs' = [n \in Procs |-> IF obs[n].seen THEN Older(obs[n], Take) ELSE obs[n]]
        /\ act' = [n \in Procs |-> IF IsIdle(n) THEN Idle ELSE Older(act[n], Hold)]
        /\ UNCHANGED stray

(* A read that comes back now. Where the record has changed since it was read, *)
(* the flag is down again. Whoever finds itself named may take it: that was a  *)
(* write which nobody told it of.                                              *)
Look(n) == /\ ~Valid(n) /\ IsIdle(n) /\ ~obs[n].cur
           /\ obs' = [obs EXCEPT ![n] = [seen |-> TRUE, free |-> rec.holder \in {Free, n},
                                         cur |-> TRUE, age |-> 0]]
           /\ UNCHANGED <<rec, bel, act, stray>>

MayTake(n) == \/ obs[n].free
              \/ CASE Variant = "wall" -> rec.age + Skew >= Take
                   [] Variant = "short" -> obs[n].age >= Hold - 1
                   [] OTHER -> obs[n].age >= Take

Send(n, kind, cur) ==
    act' = [act EXCEPT ![n] = [Idle EXCEPT !.kind = kind, !.at = "out", !.cur = cur]]

Acquire(n) == /\ ~Valid(n) /\ IsIdle(n) /\ obs[n].seen /\ MayTake(n)
              /\ Send(n, "acquire", obs[n].cur)
              /\ bel' = [bel EXCEPT ![n] = Nothing]
              /\ obs' = [obs EXCEPT ![n] = Unseen]
              /\ UNCHANGED <<rec, stray>>

Renew(n) == /\ bel[n].on /\ IsIdle(n)
            /\ Valid(n) \/ Variant = "expired"
            /\ Send(n, "renew", bel[n].cur)
            /\ UNCHANGED <<rec, bel, obs, stray>>

Release(n) == /\ bel[n].on /\ IsIdle(n)
              /\ Send(n, "release", bel[n].cur)
              /\ bel' = IF Variant = "after" THEN bel ELSE [bel EXCEPT ![n] = Nothing]
              /\ UNCHANGED <<rec, obs, stray>>

(* After a write everybody's flag is down but the writer's, who is answered.   *)
Changed(by) ==
    /\ bel' = [m \in Procs |-> [bel[m] EXCEPT !.cur = FALSE]]
    /\ obs' = [m \in Procs |-> [obs[m] EXCEPT !.cur = FALSE]]
    /\ act' = [m \in Procs |->
                 IF m = by THEN [act[m] EXCEPT !.at = "back", !.ok = TRUE, !.mine = TRUE,
                                               !.cur = TRUE]
                 ELSE [act[m] EXCEPT !.cur = FALSE, !.mine = FALSE]]
    /\ stray' = NoStray  \* one that fails makes no difference any more
Written(kind, who, age) ==
    rec' = [holder |-> IF kind = "release" THEN Free ELSE who,
            age |-> IF Variant = "wall" THEN Cap(age, Take) ELSE 0,
            count |-> IF MaxEpoch = 0 THEN 0
                      ELSE IF kind = "acquire" THEN rec.count + 1
                      ELSE IF kind = "release" /\ Variant = "forget" THEN 0 ELSE rec.count]

(* The request reaches the store. *)
Succeeds(n) == act[n].cur \/ (Variant = "blind" /\ act[n].kind = "renew")
Land(n) == /\ act[n].kind # "none" /\ act[n].at = "out"
           /\ IF Succeeds(n)
              THEN Written(act[n].kind, n, act[n].age) /\ Changed(n)
              ELSE /\ act' = [act EXCEPT ![n].at = "back", ![n].cur = FALSE]
                   /\ UNCHANGED <<rec, bel, obs, stray>>
LandStray == /\ stray # NoStray
             /\ Written(stray.kind, stray.who, 0)
             /\ Changed(Nobody)

(* The mistake: somebody gives back what it never had.                         *)
Meddle(n) == /\ Variant = "stranger" /\ ~bel[n].on /\ IsIdle(n)
             /\ rec.holder \notin {Free, n}
             /\ Written("release", Free, 0)
             /\ Changed(Nobody)

Lose(n) == /\ act[n].kind # "none" /\ act[n].at # "lost"
           /\ act' = [act EXCEPT ![n].at = "lost", ![n].cur = @ /\ act[n].at = "back"]
           /\ UNCHANGED <<rec, bel, obs, stray>>

(* Valid from before it was sent; an answer after its time is nothing, and a   *)
(* renewal that is heard of after the hard stop comes too late.                *)
Since(age) == IF Variant = "late" THEN 0 ELSE age
Grant(n) ==
    bel' = [bel EXCEPT ![n] =
              IF act[n].kind = "release" THEN Nothing
              ELSE IF Since(act[n].age) >= Hold THEN bel[n]
              ELSE IF act[n].kind = "renew" /\ ~Valid(n) /\ Variant # "expired" THEN bel[n]
              ELSE [on |-> TRUE, age |-> Since(act[n].age), cur |-> act[n].cur]]

(* An answer. Without success somebody else wrote, and the tenure is lost.     *)
Hear(n) == /\ act[n].kind # "none" /\ act[n].at = "back"
           /\ IF act[n].ok THEN Grant(n) ELSE bel' = [bel EXCEPT ![n] = Nothing]
           /\ act' = [act EXCEPT ![n] = Idle]
           /\ UNCHANGED <<rec, obs, stray>>

(* What it sent goes on without it, if it can still succeed.                   *)
Astray(n, who) ==
    stray' = IF act[n].at = "out" /\ act[n].cur THEN [kind |-> act[n].kind, who |-> who]
             ELSE IF stray.who = n THEN [stray EXCEPT !.who = who] ELSE stray

(* No answer came in time: read, and adopt the very write that was sent.       *)
Wonder(n) == /\ act[n].kind # "none" /\ act[n].at # "back"
             /\ IF act[n].mine \/ (Variant = "adopt" /\ rec.holder = n)
                THEN Grant(n)
                ELSE UNCHANGED bel
             /\ Astray(n, n)
             /\ act' = [act EXCEPT ![n] = Idle]
             /\ UNCHANGED <<rec, obs>>

(* It comes back under another nonce: the record names somebody dead.          *)
Crash(n) == /\ rec' = IF rec.holder = n THEN [rec EXCEPT !.holder = Dead] ELSE rec
            /\ bel' = [bel EXCEPT ![n] = Nothing]
            /\ obs' = [obs EXCEPT ![n] = Unseen]
            /\ Astray(n, Dead)
            /\ act' = [act EXCEPT ![n] = Idle]

Next == Tick \/ LandStray
        \/ \E n \in Procs : \/ Look(n) \/ Acquire(n) \/ Renew(n) \/ Release(n) \/ Meddle(n)
                            \/ Land(n) \/ Lose(n) \/ Hear(n) \/ Wonder(n) \/ Crash(n)
Spec == Init /\ [][Next]_vars
Bound == rec.count <= MaxEpoch

LeaseUniqueness == Cardinality({n \in Procs : Valid(n)}) <= 1
BeliefConsistency == \A n \in Procs : Valid(n) => rec.holder = n
(* A key whose holder stopped is not blocked: whoever has waited may write.    *)
ExpiredLeaseClaimable ==
    \A n \in Procs : obs[n].seen /\ obs[n].cur /\ obs[n].age >= Take /\ IsIdle(n)
                     => ENABLED Acquire(n)

ExpiredStaysExpired ==
    [][\A n \in Procs : bel[n].on /\ ~Valid(n) /\ bel'[n].on /\ bel'[n].age < Hold
                        => act[n].kind = "acquire"]_vars
RenewalRequiresOwnership ==
    [][\A n \in Procs : act[n].kind = "renew" /\ act[n].at = "out" /\ act'[n].at = "back"
                        /\ act'[n].ok => rec.holder = n]_vars
EpochMonotonic ==
    [][/\ rec'.count >= rec.count
       /\ rec'.holder \in Procs /\ rec'.holder # rec.holder => rec'.count > rec.count]_vars

(* What must be reachable, or the model proves nothing: TLC is to refute these. *)
NeverTakenOver == ~(\E n \in Procs : Valid(n) /\ rec.count = 2 /\ bel[n].age = 0)
NeverAdopted == ~(\E n \in Procs : act[n].mine /\ act[n].at = "lost" /\ act[n].kind = "renew")
NeverStray == ~(rec.holder = Dead /\ rec.count = 2)
=============================================================================
