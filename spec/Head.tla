-------------------------------- MODULE Head --------------------------------
(* The commit protocol of src/leasehold/shell/ledger/commit.py with crash, take-over   *)
(* and lost answers. Of tenure it assumes the least: an epoch is granted once,  *)
(* to anybody, at any time, above all earlier ones; several processes may       *)
(* believe that they hold it, for ever. So what is proved here rests on the     *)
(* epoch in the head and on the conditional write, and on no clock.             *)
(*                                                                              *)
(* A decision is to start a run that the log does not know yet. Two batches     *)
(* that start the same run are what all this is there to prevent.               *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Procs, Runs, MaxEpoch, Variant

(* Variant: "right", or the mistake that is made:                               *)
(*   "noseal"    a new owner decides without sealing the head                   *)
(*   "noreplay"  it does not materialise what its predecessor committed         *)
(*   "unknown"   an answer that was lost is taken for a no                      *)
(*   "blind"     the head is written without the condition                      *)
(*   "cached"    the log is read before the head is sealed                      *)

VARIABLES head,    \* what is stored: its epoch, and the log it reaches
          done,    \* the runs whose objects exist: what was materialised
          granted, \* the last epoch that tenure gave to anybody
          proc,    \* each process: where it is, its epoch, the log it knows
          wire     \* its write of the head, if one is on its way or was not answered

vars == <<head, done, granted, proc, wire>>
Sym == Permutations(Procs) \cup Permutations(Runs)

(* A process that knows nothing; `cur`: the head is as it last saw it.          *)
Fresh == [at |-> "out", epoch |-> 0, log |-> <<>>, cur |-> FALSE]
NoWrite == [kind |-> "none", epoch |-> 0, log |-> <<>>, cur |-> FALSE, at |-> "lost"]
Started(log) == {log[i].run : i \in DOMAIN log}

Init == /\ head = [epoch |-> 0, log |-> <<>>]
        /\ done = {}
        /\ granted = 0
        /\ proc = [n \in Procs |-> Fresh]
        /\ wire = [n \in Procs |-> NoWrite]

(* Tenure: somebody is told that it may decide.                                 *)
Gain(n) == /\ proc[n].at = "out" /\ wire[n] = NoWrite /\ granted < MaxEpoch
           /\ granted' = granted + 1
           /\ proc' = [proc EXCEPT ![n] = [at |-> "gained", epoch |-> granted + 1,
                                           log |-> head.log, cur |-> FALSE]]
           /\ UNCHANGED <<head, done, wire>>

(* It reads the head; a higher epoch in there says that it is too late.         *)
Read(n) == /\ proc[n].at = "gained" /\ wire[n] = NoWrite
           /\ proc' = [proc EXCEPT ![n] =
                         IF head.epoch > proc[n].epoch THEN Fresh
                         ELSE [@ EXCEPT !.cur = TRUE,
                                        !.at = IF Variant = "noseal" THEN "sealed" ELSE "read"]]
           /\ UNCHANGED <<head, done, granted, wire>>

Write(n, kind, log) ==
    wire' = [wire EXCEPT ![n] = [kind |-> kind, epoch |-> proc[n].epoch, log |-> log,
                                 cur |-> proc[n].cur, at |-> "out"]]
Seal(n) == /\ proc[n].at = "read" /\ wire[n] = NoWrite
           /\ Write(n, "seal", head.log)
           /\ UNCHANGED <<head, done, granted, proc>>

(* Replay and list: what is committed becomes true before anything is decided.  *)
Recover(n) == /\ proc[n].at = "sealed" /\ wire[n] = NoWrite
              /\ LET log == IF Variant = "cached" THEN proc[n].log ELSE head.log IN
                 /\ proc' = [proc EXCEPT ![n].at = "ready", ![n].log = log]
                 /\ done' = IF Variant = "noreplay" THEN done ELSE done \cup Started(log)
              /\ UNCHANGED <<head, granted, wire>>

Decide(n) == /\ proc[n].at = "ready" /\ wire[n] = NoWrite
             /\ \E r \in Runs \ Started(proc[n].log) :
                  Write(n, "commit",
                        Append(proc[n].log, [run |-> r, epoch |-> proc[n].epoch]))
             /\ UNCHANGED <<head, done, granted, proc>>

Materialise(n) == /\ proc[n].at = "ready" /\ wire[n] = NoWrite
                  /\ Started(proc[n].log) \ done # {}
                  /\ done' = done \cup Started(proc[n].log)
                  /\ UNCHANGED <<head, granted, proc, wire>>

(* The write reaches the store. A seal keeps the log that is there.             *)
Land(n) ==
    /\ wire[n].at = "out"
    /\ IF wire[n].cur \/ Variant = "blind"
       THEN /\ head' = [epoch |-> wire[n].epoch,
                        log |-> IF wire[n].kind = "seal" THEN head.log ELSE wire[n].log]
            /\ proc' = [m \in Procs |-> [proc[m] EXCEPT !.cur = FALSE]]
            /\ wire' = [m \in Procs |-> IF m = n THEN [wire[n] EXCEPT !.at = "yes", !.cur = TRUE]
                                        ELSE [wire[m] EXCEPT !.cur = FALSE]]
       ELSE /\ wire' = [wire EXCEPT ![n].at = "no", ![n].cur = FALSE]
            /\ UNCHANGED <<head, proc>>
    /\ UNCHANGED <<done, granted>>
Lose(n) == /\ wire[n].at \in {"out", "yes", "no"}
           /\ wire' = [wire EXCEPT ![n].at = "lost"]
           /\ UNCHANGED <<head, done, granted, proc>>

(* What it does when it knows that the write happened, or that it did not.      *)
Succeed(n) == IF wire[n].kind = "seal"
              THEN [proc[n] EXCEPT !.at = "sealed", !.cur = wire[n].cur]
              ELSE [proc[n] EXCEPT !.log = wire[n].log, !.cur = wire[n].cur]
Look(n) == CASE wire[n].kind = "seal" -> [proc[n] EXCEPT !.at = "gained", !.cur = FALSE]
             [] Variant = "unknown" /\ wire[n].at = "lost" ->
                  IF head.epoch = proc[n].epoch THEN [proc[n] EXCEPT !.cur = TRUE] ELSE Fresh
             [] head.log = wire[n].log /\ head.epoch = wire[n].epoch ->
                  [proc[n] EXCEPT !.log = wire[n].log, !.cur = TRUE]
             [] head.log = proc[n].log /\ head.epoch = proc[n].epoch ->
                  [proc[n] EXCEPT !.cur = TRUE]
             [] OTHER -> Fresh

Hear(n) == /\ wire[n].at \in {"yes", "no"}
           /\ proc' = [proc EXCEPT ![n] = IF wire[n].at = "yes" THEN Succeed(n)
                                          ELSE Look(n)]
           /\ wire' = [wire EXCEPT ![n] = NoWrite]
           /\ UNCHANGED <<head, done, granted>>
(* Whoever is refused, or not answered, looks at the head: mine, as before, or  *)
(* somebody else's. `wire.cur` stays with a write that may still succeed.       *)
Wonder(n) == /\ wire[n].kind # "none" /\ wire[n].at = "lost"
             /\ proc' = [proc EXCEPT ![n] = Look(n)]
             /\ wire' = [wire EXCEPT ![n] = NoWrite]
             /\ UNCHANGED <<head, done, granted>>
Crash(n) == /\ proc' = [proc EXCEPT ![n] = Fresh]
            /\ wire' = [wire EXCEPT ![n] = IF @.at = "out" THEN @ ELSE NoWrite]
            /\ UNCHANGED <<head, done, granted>>
(* A write whose sender is gone was answered to nobody.                         *)
Forget(n) == /\ proc[n].at = "out" /\ wire[n].at \in {"yes", "no", "lost"} /\ wire[n] # NoWrite
             /\ wire' = [wire EXCEPT ![n] = NoWrite]
             /\ UNCHANGED <<head, done, granted, proc>>

Next == \E n \in Procs : \/ Gain(n) \/ Read(n) \/ Seal(n) \/ Recover(n) \/ Decide(n)
                         \/ Materialise(n) \/ Land(n) \/ Lose(n) \/ Forget(n)
                         \/ (proc[n].at # "out" /\ (Hear(n) \/ Wonder(n) \/ Crash(n)))
Spec == Init /\ [][Next]_vars

NothingDecidedTwice == Cardinality(Started(head.log)) = Len(head.log)
EpochsRiseInTheLog == \A i, j \in DOMAIN head.log : i < j => head.log[i].epoch <= head.log[j].epoch
(* Nobody who may still commit misses anything that is committed.               *)
DecidesOnTheWhole == \A n \in Procs : wire[n].kind = "commit" /\ wire[n].at = "out" /\ wire[n].cur
                                      => SubSeq(wire[n].log, 1, Len(wire[n].log) - 1) = head.log
OwnerFindsAllDone == \A n \in Procs : proc[n].at = "ready" /\ proc[n].cur /\ wire[n] = NoWrite
                                      /\ proc[n].epoch = head.epoch
                                      => \A i \in DOMAIN head.log :
                                           head.log[i].epoch < proc[n].epoch
                                           => head.log[i].run \in done
NothingIsUndone == [][Len(head'.log) >= Len(head.log)
                      /\ SubSeq(head'.log, 1, Len(head.log)) = head.log]_vars
(* Once an owner has recovered, nobody with an older epoch commits any more.    *)
SealedHeadRejectsOldEpoch ==
    [][\A n \in Procs : proc[n].at = "ready" /\ head.epoch = proc[n].epoch /\ head'.log # head.log
                        => head'.epoch >= proc[n].epoch]_vars
ReadyMeansSealed == \A n \in Procs : proc[n].at = "ready" => head.epoch >= proc[n].epoch

(* What must be reachable, or the model proves nothing: TLC is to refute these. *)
NeverDeposed == ~(\E n \in Procs : wire[n].kind = "commit" /\ wire[n].at = "no"
                                   /\ head.epoch > proc[n].epoch)
NeverTwoOwners == ~(\E n, m \in Procs : n # m /\ proc[n].at = "ready" /\ proc[m].at = "ready")
NeverTakenOver == ~(Len(head.log) = 2 /\ head.log[1].epoch < head.log[2].epoch)
=============================================================================
