// Verifies the server's records in the browser: the digest and draws of a Resolution, and the chain
// of batches. The rules are in docs/ledger-format.md. Only the records themselves come from the
// server.
const bytes = (text) => new TextEncoder().encode(text);
const hex = (buffer) => [...new Uint8Array(buffer)].map((each) => each.toString(16).padStart(2, "0")).join("");
const sha256 = async (data) => hex(await crypto.subtle.digest("SHA-256", typeof data === "string" ? bytes(data) : data));
const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const VERSION = "leasehold/lottery/v1";
const RANGE = 1n << 64n;

// Sorts by code points, as the ledger format requires; JavaScript sorts by UTF-16 units.
function compare(a, b) {
  const left = [...a], right = [...b];
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    const found = left[i].codePointAt(0) - right[i].codePointAt(0);
    if (found) return found;
  }
  return left.length - right.length;
}

export async function number(seed, k, n) {
  const limit = RANGE - (RANGE % BigInt(n));
  for (let i = 0; ; i++) {
    const value = BigInt("0x" + (await sha256(`${seed}\n${k}\n${i}`)).slice(0, 16));
    if (value < limit) return { value, place: Number(value % BigInt(n)) };
  }
}

function bundleParts(name) {
  const [, namespace, run, , group] = /^([^/]*)\/([^#]*)(#(\d+))?$/.exec(name) ?? [null, "", name];
  return [namespace, run, group === undefined ? -1 : Number(group)];
}

function bundleOrder(a, b) {
  const left = bundleParts(a.bundle), right = bundleParts(b.bundle);
  return compare(left[0], right[0]) || compare(left[1], right[1]) || left[2] - right[2];
}

// Repeats the draws; reports each step next to the recorded one.
export async function replay(record, subject) {
  const problems = [], steps = [];
  const lottery = record.lottery;
  if (!lottery) return { problems, steps, seed: "" };
  const from = lottery.derivedFrom ?? {};
  if (from.subject !== record.subject || record.subject !== subject) problems.push("the lottery is about another subject");
  if (from.instant !== record.instant) problems.push("the lottery has another time");
  if (!/^([0-9a-f]{2})+$/.test(from.nonce ?? "")) problems.push("the nonce is not lower-case hexadecimal");
  else if (await sha256(unhex(from.nonce)) !== lottery.commitment) problems.push("the commitment is not the SHA-256 of the nonce");
  const seed = await sha256([VERSION, from.subject, from.instant, from.ledgerDigest, from.nonce].join("\n"));
  if (seed !== lottery.seed) problems.push(`the seed is not the derived one, ${seed}`);
  const all = Object.keys(lottery.conflictSet ?? {}).sort(compare)
    .map((owner) => [owner, [...lottery.conflictSet[owner]].sort(bundleOrder)]);
  const widths = new Map(Object.entries(lottery.sweeps ?? {}).map(([run, each]) => [run, each.width]));
  let k = 0;
  for (const [place, said] of (lottery.draws ?? []).entries()) {
    const left = choices(all, lottery.ownedLast);
    if (!left.length) { problems.push(`draw ${place + 1}: nothing was left to draw`); break; }
    const first = await number(seed, k, left.length);
    const [owner, bundles] = left[first.place];
    const second = await number(seed, k + 1, bundles.length);
    const drawn = bundles[second.place];
    const ok = said.owner === owner && said.bundle === drawn.bundle && said.gpus === drawn.gpus;
    steps.push({ owners: left.map(([name]) => name), bundles: bundles.map((each) => each.bundle), first, second, owner, drawn, said, ok });
    if (!ok) { problems.push(`draw ${place + 1}: the record says ${said.bundle} of ${said.owner}; the seed draws ${drawn.bundle} of ${owner}`); break; }
    const mine = all.find(([name]) => name === owner);
    mine[1] = afterDraw(mine[1], drawn, lottery.sweeps ?? {}, widths);
    k += 2;
  }
  if (!(lottery.draws ?? []).length) problems.push("the lottery has no draws");
  return { problems, steps, seed };
}

// Returns the candidates of the next draw by owner. With `ownedLast`, bundles paid only by their own
// owners come after all others (rule Q10).
function choices(all, ownedLast) {
  const some = (found) => found.filter(([, bundles]) => bundles.length);
  const first = ownedLast ? some(all.map(([owner, bundles]) => [owner, bundles.filter((each) => !each.owned)])) : [];
  return first.length ? first : some(all);
}

// Returns an owner's remaining bundles. A run whose groups are drawn one by one becomes a single
// bundle once another group would take it below its minimum (rule R4).
function afterDraw(bundles, drawn, sweeps, widths) {
  const left = bundles.filter((each) => each !== drawn);
  const [run, group] = drawn.bundle.split("#");
  const sweep = sweeps[run];
  if (group === undefined || !sweep) return left;
  const width = widths.get(run) - drawn.gpus;
  widths.set(run, width);
  const mine = left.filter((each) => each.bundle.split("#")[0] === run);
  if (!mine.length || width - sweep.group >= sweep.minimum) return left;
  const whole = { bundle: run, gpus: width, owned: mine.every((each) => each.owned) };
  return [...left.filter((each) => !mine.includes(each)), whole].sort(bundleOrder);
}

// Verifies batches in order; `before` is the digest that the first one follows.
export async function verifyChain(before, lines) {
  let digest = before;
  for (const line of lines) {
    const found = await sha256(`${digest}\n${line.text}`);
    if (found !== line.digest) return { digest, problem: `batch ${line.seq} does not follow from the batch before: its digest should be ${found}` };
    let inside;
    try { inside = JSON.parse(line.text); } catch { inside = {}; }
    if (inside.seq !== line.seq) return { digest, problem: `batch ${line.seq} says that it is ${inside.seq}` };
    digest = found;
  }
  return { digest, problem: "" };
}

function element(name, text, look) {
  const found = document.createElement(name);
  if (text !== undefined) found.textContent = text;
  if (look) found.className = look;
  return found;
}

function tell(place, ok, title, lines) {
  const box = element("div", undefined, `verdict ${ok ? "ok" : "no"}`);
  box.append(element("b", title));
  const list = element("ul");
  for (const each of lines) list.append(element("li", each));
  if (lines.length) box.append(list);
  place.replaceChildren(box);
}

function showDraws(place, { steps, seed }) {
  place.replaceChildren();
  if (!steps.length) return;
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const each of ["Draw", "Among owners", "Number", "Among its bundles", "Number", "Drawn", "The record says"]) head.append(element("th", each));
  const body = table.createTBody();
  steps.forEach((step, at) => {
    const row = body.insertRow();
    const cells = [at + 1, step.owners.join(", "), `${step.first.value} mod ${step.owners.length} = ${step.first.place}`,
      step.bundles.join(", "), `${step.second.value} mod ${step.bundles.length} = ${step.second.place}`,
      `${step.drawn.bundle}, ${step.drawn.gpus} GPUs`, step.ok ? "the same" : `${step.said.bundle} of ${step.said.owner}`];
    for (const each of cells) row.append(element("td", String(each), step.ok ? "" : "bad"));
  });
  const scroll = element("div", undefined, "scroll");
  scroll.tabIndex = 0; scroll.setAttribute("role", "region"); scroll.setAttribute("aria-label", "Draws");
  scroll.append(table);
  const said = element("p", "Seed ");
  said.append(element("span", seed, "mono"));
  place.append(said, scroll);
}

// Returns what the batch records about the Resolution, if the batch is still in the store.
async function committed(box) {
  const batch = Number(box.dataset.batch);
  const answer = await fetch(`/ui/ledger.json?after=${batch - 1}`, { cache: "no-store" });
  if (!answer.ok) return { digest: "", problem: "" };
  const { before, lines } = await answer.json();
  const line = lines.find((each) => each.seq === batch);
  if (!line) return { digest: "", problem: "" };
  const { problem } = await verifyChain(before, lines.slice(0, 1));
  const found = (JSON.parse(line.text).resolutions ?? []).find((each) => each.name === box.dataset.name);
  return { digest: found?.digest ?? "", problem: problem || (found ? "" : `batch ${batch} names no such Resolution`) };
}

async function checkRecord(box) {
  const verdict = document.getElementById("verdict"), draws = document.getElementById("draws");
  const text = document.getElementById("record").value;
  draws.replaceChildren();
  let record;
  try { record = JSON.parse(text); } catch { return tell(verdict, false, "Rejected: this is not JSON", []); }
  const problems = [];
  const digest = await sha256(text);
  const batch = await committed(box);
  const wanted = batch.digest || box.dataset.digest;
  if (batch.problem) problems.push(batch.problem);
  if (digest !== wanted) problems.push(`its digest is ${digest}; the batch committed ${wanted}`);
  const drawn = await replay(record, box.dataset.subject);
  problems.push(...drawn.problems);
  showDraws(draws, drawn);
  if (problems.length) return tell(verdict, false, "Rejected: this is not the committed record, or the draw does not follow from its seed", problems);
  const fair = drawn.steps.length ? `${drawn.steps.length === 1 ? "the draw comes" : `all ${drawn.steps.length} draws come`} out of the seed, and the seed out of what was committed to beforehand` : "there was no lottery";
  tell(verdict, true, "Verified in this browser: this is the committed record", [batch.digest ? `its SHA-256 is in batch ${box.dataset.batch}, whose own digest follows from the one before` : "its SHA-256 is what the server says the batch has; the batch is archived", fair]);
}

async function checkChain(button) {
  const verdict = document.getElementById("verdict");
  button.disabled = true;
  let after = 0, digest = "", count = 0, head = null, first = null, rests = "";
  try {
    for (;;) {
      const answer = await fetch(`/ui/ledger.json?after=${after}`, { cache: "no-store" });
      if (!answer.ok) { tell(verdict, false, "The batches cannot be read", [(await answer.json()).message]); return; }
      const found = await answer.json();
      head = found.head;
      let lines = found.lines;
      if (!lines.length) break;
      if (first === null) {
        first = lines[0].seq; digest = found.before; rests = first > 1 ? `batch ${first} follows an archived one` : "";
        // The digest before the first batch is in the archive and unknown here, so it is not verified.
        if (!digest) { digest = lines[0].digest; rests += ", so its digest was not checked"; after = first; count = 1; lines = lines.slice(1); }
      }
      const { digest: last, problem } = await verifyChain(digest, lines);
      if (problem) { tell(verdict, false, "Rejected: the chain is broken", [problem]); return; }
      digest = last; count += lines.length; after = lines.at(-1)?.seq ?? after;
      verdict.textContent = `${count} batches …`;
      if (after === head.seq) break; // a newer batch is fetched together with its head
    }
    if (!count && !head.seq) tell(verdict, true, "There is no batch yet", []);
    else if (!count) tell(verdict, false, "Not checked: every batch is in the archive", ["use `leasehold ledger verify`"]);
    else if (after !== head.seq) tell(verdict, false, "Rejected: the chain ends before its head", [`the head is batch ${head.seq}, but the server sent no batch after ${after}`]);
    else if (digest !== head.digest) tell(verdict, false, "Rejected: the last digest is not the head's", [digest, head.digest]);
    else tell(verdict, true, `Verified in this browser: ${count} batches, from ${first} to ${after}, each follows from the one before`, [`the last digest is ${digest}, as the head says`, ...(rests ? [rests] : [])]);
  } finally { button.disabled = false; }
}

const box = document.querySelector(".witness[data-digest]");
if (box) {
  const record = document.getElementById("record"), original = record.value;
  const check = document.getElementById("check"), restore = document.getElementById("restore");
  check.disabled = restore.disabled = false;
  check.addEventListener("click", () => checkRecord(box));
  restore.addEventListener("click", () => { record.value = original; checkRecord(box); });
  checkRecord(box);
}
const verify = document.getElementById("verify");
if (verify) { verify.disabled = false; verify.addEventListener("click", () => checkChain(verify)); }
