// Keeps a page up to date. The event stream says that there is something new; then the page is
// fetched again and its changes are applied. Without a stream the page shows a notice.
import { morph } from "./morph.js";

const STALE_MS = 25000; // the server sends an event every ten seconds
const RETRY_MS = [1000, 2000, 4000, 8000, 15000];
const line = document.getElementById("live");
const word = document.getElementById("live-word");
let version = document.documentElement.dataset.version;
let source = null, heard = 0, failures = 0, timer = 0, busy = false, again = false;

function say(state) {
  line.classList.toggle("is-live", state === "live");
  line.classList.toggle("is-stale", state === "stale");
  word.textContent = state === "live" ? "live," : state === "stale" ? "not live since" : "as of";
}

function connect() {
  clearTimeout(timer);
  if (source) source.close();
  source = new EventSource("/ui/live?seen=" + encodeURIComponent(version));
  source.addEventListener("change", (event) => { hear(); if (event.data !== version) refresh(); });
  source.addEventListener("beat", () => { hear(); refresh(); });
  source.addEventListener("open", hear);
  source.addEventListener("error", () => {
    say("stale");
    if (source.readyState === EventSource.CLOSED) {
      timer = setTimeout(connect, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
    }
  });
}

function hear() { heard = Date.now(); failures = 0; say("live"); }

async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    do {
      again = false;
      document.dispatchEvent(new CustomEvent("leasehold:change")); // drawings do not wait for the page
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
      if (answer.status === 401) { location.reload(); return; }
      if (!answer.ok) throw new Error(answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      version = page.documentElement.dataset.version || version;
      document.documentElement.dataset.version = version;
      if (!document.body.dataset.past) morph(document.getElementById("main"), page.getElementById("main"));
      morph(document.getElementById("as-of"), page.getElementById("as-of"));
      document.dispatchEvent(new CustomEvent("leasehold:fresh"));
    } while (again);
  } catch { say("stale"); }
  busy = false;
}

// A hidden page holds no connection: a browser allows six per server over all its windows.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { source?.close(); source = null; clearTimeout(timer); say("as of"); }
  else connect();
});
setInterval(() => { if (source && heard && Date.now() - heard > STALE_MS) { say("stale"); heard = 0; connect(); } }, 5000);
connect();

const theme = document.getElementById("theme");
const dark = matchMedia("(prefers-color-scheme: dark)");
const current = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
function label() { theme.textContent = current() === "dark" ? "light" : "dark"; theme.setAttribute("aria-label", `Use the ${theme.textContent} theme`); }
theme.hidden = false;
label();
dark.addEventListener("change", label);
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = current() === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", current()); } catch { /* then it lasts as long as the page */ }
  label();
  document.dispatchEvent(new CustomEvent("leasehold:theme"));
});
