// Draws every slot of the fleet on one canvas, by flavor and domain. The page fetches everything once
// and then only changes; for a past instant it fetches what the leases show.
const view = document.getElementById("fleet-view"), canvas = document.getElementById("fleet");
const tip = document.getElementById("tip"), said = document.getElementById("said"), legend = document.getElementById("legend");
const colour = document.getElementById("colour"), slider = document.getElementById("slider"), at = document.getElementById("at");
const through = document.getElementById("through"), shown = document.getElementById("slider-at");
const pen = canvas.getContext("2d");
const FREE = 0, BROKEN = new Set(["Fenced", "NotReady", "Unusable"]), STEPS = 1000;
const CLOSED = new Set(["Cordoned", "Draining", "Tainted"]);
let fleet = { version: "", nodes: [], holders: {}, owners: {} };
let places = [], chosen = -1, cell = 10, asked = 0, named = 0; // a node's rows, for its name
const past = () => at.value.trim();

async function load() {
  const mine = ++asked;
  const params = new URLSearchParams(past() ? { at: past() } : { since: fleet.version });
  const answer = await fetch(`/ui/fleet.json?${params}`, { cache: "no-store" });
  if (!answer.ok || mine !== asked) return; // superseded by a newer request
  const found = await answer.json();
  if (mine !== asked) return;
  if (found.nodes) fleet.nodes = found.nodes;
  for (const [place, state, cells] of found.changes ?? []) { fleet.nodes[place][3] = state; fleet.nodes[place][4] = cells; }
  fleet.version = past() ? "" : found.version;
  if (found.nodes) { fleet.holders = found.holders; fleet.owners = found.owners; }
  else { Object.assign(fleet.holders, found.holders); Object.assign(fleet.owners, found.owners); }
  if (found.nodes) arrange(); else draw();
  canvas.dataset.drawn = String(Number(canvas.dataset.drawn ?? 0) + 1);
  canvas.dataset.changes = String(found.changes ? found.changes.length : -1);
}

// Places the domains side by side, each a block of nodes; a node is two rows of slots.
function arrange() {
  const width = Math.max(280, view.clientWidth), groups = new Map();
  fleet.nodes.forEach((node, place) => {
    const key = `${node[2]}\n${node[1]}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(place);
  });
  const slots = fleet.nodes.reduce((sum, node) => sum + node[4].length, 0) || 1;
  const room = width * Math.max(360, window.innerHeight - 330);
  cell = Math.max(3, Math.min(width > 1800 ? 52 : 32, Math.floor(Math.sqrt(room / slots / 2.8))));
  const gap = cell > 7 ? 2 : 1, label = cell > 5 ? 20 : 13;
  named = cell < 16 ? 0 : width > 1800 ? 22 : 17;
  places = new Array(fleet.nodes.length);
  let x = 0, y = 0, tall = 0;
  const labels = [];
  for (const key of [...groups.keys()].sort()) {
    const members = groups.get(key);
    const columns = Math.ceil(Math.max(...members.map((place) => fleet.nodes[place][4].length), 1) / 2);
    const nodeWide = columns * (cell + gap) + 3 * gap, nodeTall = 2 * (cell + gap) + 3 * gap + named;
    const least = cell > 5 ? 150 : 60;
    const perRow = Math.max(1, Math.min(members.length, Math.floor(Math.max(least, Math.min(width, nodeWide * Math.ceil(Math.sqrt(members.length * 1.6)))) / nodeWide)));
    const wide = Math.max(least, perRow * nodeWide), rows = Math.ceil(members.length / perRow);
    if (x && x + wide > width) { x = 0; y += tall; tall = 0; }
    labels.push([key, x, y + label - (cell > 5 ? 6 : 4), wide]);
    members.forEach((place, i) => {
      places[place] = [x + (i % perRow) * nodeWide, y + label + Math.floor(i / perRow) * nodeTall, columns, gap];
    });
    tall = Math.max(tall, label + rows * nodeTall + (cell > 5 ? 16 : 6));
    x += wide + (cell > 5 ? 26 : 8);
  }
  const scale = Math.min(2, window.devicePixelRatio || 1), height = y + tall;
  canvas.width = width * scale; canvas.height = Math.max(40, height) * scale;
  canvas.style.height = `${Math.max(40, height)}px`;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  arrange.labels = labels;
  draw();
}

function style(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function palette() {
  const hues = Array.from({ length: 12 }, (_, i) => style(`--c${i}`));
  const names = { idle: style("--idle"), broken: style("--broken"), closed: style("--closed"), foreign: style("--foreign"), ink: style("--ink"), soft: style("--soft"), paid: style("--paid"), spare: style("--spare"), filler: style("--filler") };
  const ofText = (text) => hues[[...text].reduce((sum, each) => (sum * 31 + each.codePointAt(0)) >>> 0, 7) % 12];
  const by = {
    owner: (holder) => hues[fleet.owners[holder.owner] ?? 0],
    payer: (holder) => hues[fleet.owners[holder.payerOwner] ?? 0],
    run: (holder) => ofText(holder.run),
    state: (holder) => (holder.role === "Spare" ? names.spare : holder.role === "Borrowed" ? names.filler : names.paid),
  }[colour.value];
  return { names, by };
}

function draw() {
  const { names, by } = palette();
  const colours = new Map(Object.entries(fleet.holders).map(([number, holder]) => [Number(number), [by(holder), holder.role]]));
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.font = `${named > 17 ? 15 : cell > 5 ? 12 : 10}px Inter, sans-serif`;
  pen.fillStyle = names.soft;
  for (const [key, x, y, wide] of arrange.labels ?? []) {
    const [flavor, domain] = key.split("\n");
    let text = cell > 5 ? `${domain.split("/").pop() || "gone"} · ${flavor}` : domain.split("/").pop();
    pen.fillText(fitting(text, wide), x, y);
  }
  fleet.nodes.forEach((node, place) => drawNode(node, place, names, colours));
  if (chosen >= 0 && places[chosen]) outline(chosen, names.ink);
  tellLegend(names);
}

function fitting(text, wide) {
  while (text.length > 3 && pen.measureText(text).width > wide) text = text.slice(0, -2) + "…";
  return text;
}

function drawNode(node, place, names, colours) {
  const [x, y, columns, gap] = places[place];
  if (named) {
    pen.fillStyle = names.soft;
    pen.fillText(fitting(node[0], columns * (cell + gap)), x, y + 2 * (cell + gap) + named - 5);
  }
  const [, , , state, cells] = node;
  const free = BROKEN.has(state) ? names.broken : CLOSED.has(state) ? names.closed : names.idle;
  cells.forEach((number, slot) => {
    const left = x + (slot % columns) * (cell + gap), top = y + Math.floor(slot / columns) * (cell + gap);
    const [fill, role] = colours.get(number) ?? [number < FREE ? names.foreign : free, ""];
    if (role === "Spare" && cell > 5 && colour.value !== "state") {
      pen.strokeStyle = fill; pen.lineWidth = 2;
      pen.strokeRect(left + 1, top + 1, cell - 2, cell - 2);
    } else {
      pen.globalAlpha = role === "Borrowed" ? 0.55 : 1;
      pen.fillStyle = fill; pen.fillRect(left, top, cell, cell);
      pen.globalAlpha = 1;
    }
    if (BROKEN.has(state) && cell > 5) {
      pen.strokeStyle = number > 0 ? names.ink : style("--paper"); pen.lineWidth = 1.2;
      pen.beginPath(); pen.moveTo(left + 2, top + cell - 2); pen.lineTo(left + cell - 2, top + 2); pen.stroke();
    }
  });
}

function outline(place, ink) {
  const [x, y, columns, gap] = places[place];
  pen.strokeStyle = ink; pen.lineWidth = 1.5;
  pen.strokeRect(x - 2, y - 2, columns * (cell + gap) + 2, 2 * (cell + gap) + 2);
}

function tellLegend(names) {
  const items = [];
  if (colour.value === "state") items.push(["paid", names.paid], ["spare", names.spare], ["filler", names.filler]);
  else if (colour.value !== "run") {
    const key = colour.value === "owner" ? "owner" : "payerOwner";
    const numbers = new Set(fleet.nodes.flatMap((node) => node[4]));
    const used = new Set([...numbers].filter((number) => fleet.holders[number]).map((number) => fleet.holders[number][key]));
    for (const owner of [...used].sort().slice(0, 24)) items.push([owner, style(`--c${fleet.owners[owner] ?? 0}`)]);
  }
  items.push(["idle", names.idle], ["broken", names.broken]);
  legend.replaceChildren(...items.map(([name, fill]) => {
    const item = document.createElement("span"), key = document.createElement("i");
    item.className = "owner"; key.style.background = fill; item.append(key, name);
    return item;
  }));
}

function nodeAt(x, y) {
  return places.findIndex((place, i) => place && x >= place[0] && y >= place[1] && x < place[0] + place[2] * (cell + place[3]) && y < place[1] + 2 * (cell + place[3]) && fleet.nodes[i]);
}

function describe(place, slot) {
  const [name, domain, flavor, state, cells] = fleet.nodes[place];
  const lines = [`${name} · ${flavor || "gone"} · ${domain}${state === "Ready" ? "" : " · " + state}`];
  const numbers = slot === undefined ? [...new Set(cells)] : [cells[slot]];
  for (const number of numbers) {
    const holder = fleet.holders[number];
    const count = slot === undefined ? `${cells.filter((each) => each === number).length} × ` : `slot ${slot}: `;
    lines.push(count + (holder ? `${holder.run} (${holder.owner}), ${holder.role}, paid by ${holder.payer}, ${holder.relation}` : number < FREE ? "foreign" : "free"));
  }
  return lines.join("\n");
}

function choose(place, slot, x, y) {
  const changed = place !== chosen;
  chosen = place;
  if (changed) draw();
  tip.hidden = place < 0;
  if (place < 0) return;
  tip.textContent = describe(place, slot);
  tip.style.left = `${Math.max(0, Math.min(x + 14, view.clientWidth - 340))}px`;
  tip.style.top = `${y + 18}px`;
}

canvas.addEventListener("pointermove", (event) => {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const place = nodeAt(x, y);
  if (place < 0) return choose(-1);
  const [left, top, columns, gap] = places[place];
  const slot = Math.floor((y - top) / (cell + gap)) * columns + Math.floor((x - left) / (cell + gap));
  choose(place, slot < fleet.nodes[place][4].length ? slot : undefined, x, y);
});
canvas.addEventListener("pointerleave", () => choose(-1));
canvas.addEventListener("click", () => { if (chosen >= 0) open(chosen); });
canvas.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8, Home: -Infinity, End: Infinity }[event.key];
  if (event.key === "Enter" && chosen >= 0) return open(chosen);
  if (step === undefined || !fleet.nodes.length) return;
  event.preventDefault();
  const place = Math.max(0, Math.min(fleet.nodes.length - 1, (chosen < 0 ? 0 : chosen) + step));
  choose(place, undefined, places[place][0], places[place][1]);
  said.textContent = describe(place);
});
function open(place) { location.href = `/ui/nodes/${encodeURIComponent(fleet.nodes[place][0])}`; }

colour.addEventListener("change", () => { address({ colour: colour.value }); draw(); });
addEventListener("resize", arrange);
document.addEventListener("leasehold:theme", draw);
document.addEventListener("leasehold:change", () => { if (!past()) load(); });

// Keeps the view in the URL, so that it can be shared.
function address(given) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(given)) value ? url.searchParams.set(name, value) : url.searchParams.delete(name);
  history.replaceState(null, "", url);
}

const earliest = Date.parse(through.dataset.earliest);
if (earliest) {
  through.hidden = false; through.dataset.shown = "1"; through.dataset.keep = "1";
  const instantOf = (place) => new Date(earliest + ((Date.now() - earliest) * place) / STEPS);
  let waiting = 0;
  const move = () => {
    const place = Number(slider.value), when = place >= STEPS ? "" : instantOf(place).toISOString();
    at.value = when; shown.textContent = when ? when.slice(0, 19).replace("T", " ") : "now";
    slider.setAttribute("aria-valuetext", shown.textContent);
    if (when) document.body.dataset.past = "1"; else { delete document.body.dataset.past; fleet.version = ""; }
    address({ at: when });
    cancelAnimationFrame(waiting); waiting = requestAnimationFrame(load);
  };
  slider.addEventListener("input", move);
  document.getElementById("to-now").addEventListener("click", () => { slider.value = STEPS; move(); });
  const given = Date.parse(past());
  if (given) { slider.value = Math.max(0, Math.min(STEPS, ((given - earliest) / (Date.now() - earliest)) * STEPS)); shown.textContent = past().slice(0, 19).replace("T", " "); document.body.dataset.past = "1"; }
}
view.hidden = false; view.dataset.shown = "1";
load();
