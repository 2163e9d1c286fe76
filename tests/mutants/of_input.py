"""Planted bugs in what stands between a bad object and everybody else's work."""

from tests.mutants.mutant import Mutant, unit

TEMPLATES = ("tests/agent/test_template.py",)
BAD_INPUT = ("tests/up/test_bad_input.py",)
CONTAINED = ("tests/agent/test_containment.py",)

INPUT = (
    Mutant(
        "a variable from nowhere is accepted",
        "adapters/agent/variables.py",
        "    if len(named) != 1:\n",
        "    if len(named) > 1:\n",
        TEMPLATES,
    ),
    Mutant(
        "a template that is null is accepted",
        "adapters/agent/template.py",
        '    if spec and spec.get("template") is None:\n',
        '    if spec and "template" not in spec:\n',
        TEMPLATES,
    ),
    Mutant(
        "a label that is null is accepted",
        "core/objects/labels.py",
        "        elif labels.raw(key) is None:\n",
        "        elif labels.raw(key) is labels:\n",
        unit("objects/test_run"),
    ),
    Mutant(
        "an invalid edit of an admitted run is an internal error of the server",
        "control/running/edits.py",
        "    if run is None or not live or check_run(new):\n",
        "    if run is None or not live:\n",
        unit("control/test_edits"),
    ),
    Mutant(
        "an exception in one pod's task ends everything",
        "adapters/agent/pods.py",
        "            except Exception as error:\n                await self._clock.sleep(",
        "            except CannotStart as error:\n                await self._clock.sleep(",
        CONTAINED,
    ),
    Mutant(
        "a journal that was tampered with keeps the agent from starting",
        "adapters/agent/pods.py",
        "            except Exception as error:  # the journal",
        "            except OSError as error:  # the journal",
        CONTAINED,
    ),
    Mutant(
        "records that are removed are missed by nobody",
        "adapters/agent/pods.py",
        "            if journal.is_removed:\n                self.note(uid)\n",
        "            if journal.is_removed and not uid:\n                self.note(uid)\n",
        CONTAINED,
    ),
    Mutant(
        "a pod without records cannot be stopped",
        "adapters/agent/pods.py",
        "        elif journal is not None and journal.is_removed and journal.stage() not in",
        "        elif journal is not None and not uid and journal.stage() not in",
        CONTAINED,
    ),
    Mutant(
        "an exception about one node ends everything",
        "adapters/agent/nodes.py",
        "                except Exception as error:\n                    pause",
        "                except OSError as error:\n                    pause",
        CONTAINED,
    ),
    Mutant(
        "a task that fails once is over",
        "adapters/containment.py",
        "            await clock.sleep(containment.failed(",
        "            return await clock.sleep(containment.failed(",
        CONTAINED,
    ),
    Mutant(
        "one object that cannot be read keeps the server from starting",
        "shell/loop/stored.py",
        "            continue\n",
        "            raise\n",
        unit("shell/test_contained"),
    ),
    Mutant(
        "a run that cannot be read can never go",
        "shell/loop/quarantine.py",
        '        if kept.kind == "Run" and "deletionTimestamp" in metadata:\n',
        '        if kept.kind == "Run" and "deletedAt" in metadata:\n',
        unit("shell/test_contained"),
    ),
    Mutant(
        "a pod that the server refuses holds its GPUs until its time is over",
        "shell/loop/effects.py",
        "            if isinstance(answer, Unavailable):\n",
        "            if isinstance(answer, Unavailable | Invalid):\n",
        unit("shell/test_contained"),
    ),
    Mutant(
        "as many sponsors as somebody likes",
        "core/objects/bounds.py",
        '    Bound(path="spec.funding.sponsors", most=64),\n',
        '    Bound(path="spec.funding.sponsor", most=64),\n',
        unit("objects/test_bounds"),
    ),
    Mutant(
        "bounds are checked when everything else was",
        "core/objects/manifests.py",
        "        return over  # reporting",
        "        problems += over  # reporting",
        unit("objects/test_bounds"),
    ),
    Mutant(
        "broken hours are not read back from the ledger",
        "core/objects/budget.py",
        "                place[_HOURS] = msgspec.json.decode(text_at(place, _HOURS))\n",
        "                place[_HOURS] = text_at(place, _HOURS)\n",
        unit("shell/test_contained"),
    ),
    Mutant(
        "an exception about one run stops all decisions",
        "shell/loop/defects.py",
        "        if uid and uid not in self.left_alone:\n",
        "        if uid and not uid:\n",
        unit("shell/test_undecided"),
    ),
    Mutant(
        "a run that is left alone is tended",
        "control/decide.py",
        "        if uid not in turn.left_alone:\n",
        "        if uid or turn.left_alone:\n",
        unit("control/test_left_alone"),
    ),
    Mutant(
        "what nobody could have written can never be deleted",
        "adapters/objects/admission.py",
        '    return old.get("spec") == new.get("spec")\n',
        "    return old is new\n",
        unit("shell/test_contained"),
    ),
    Mutant(
        "whoever brings the news and fails is missed by nobody",
        "shell/loop/loop.py",
        "            self._doubt = error\n",
        "            del error\n",
        unit("shell/test_undecided"),
    ),
    Mutant(
        "one failure about nobody stops binding",
        "shell/loop/defects.py",
        "        if self._in_a_row > FAILURES_MAX and",
        "        if self._in_a_row and",
        unit("shell/test_undecided"),
    ),
    Mutant(
        "a failure between turns is a failure of the turn",
        "shell/loop/loop.py",
        "            return self._containment.failed(about, error)\n",
        "            raise\n",
        unit("shell/test_undecided"),
    ),
)
