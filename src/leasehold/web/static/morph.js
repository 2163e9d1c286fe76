// Makes one element like another with as few changes as it can, so that focus, selection, what is
// unfolded and where one has scrolled to stay. An element with data-keep is somebody else's.
export function morph(old, fresh) {
  if (!old || !fresh || old.hasAttribute("data-keep")) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open" && name !== "disabled") old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (name === "hidden" && old.hasAttribute("data-shown")) continue;
    if (name === "disabled") continue;
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (["INPUT", "TEXTAREA", "SELECT"].includes(old.tagName)) return;
  if (old.id === "verdict" || old.id === "draws") return;
  const wanted = [...fresh.childNodes];
  wanted.forEach((want, place) => {
    const have = old.childNodes[place];
    if (!have) old.append(document.importNode(want, true));
    else if (have.nodeType !== want.nodeType || have.nodeName !== want.nodeName || have.id !== want.id) {
      have.replaceWith(document.importNode(want, true));
    } else if (have.nodeType === Node.TEXT_NODE) {
      if (have.data !== want.data) have.data = want.data;
    } else if (have.nodeType === Node.ELEMENT_NODE && !have.isEqualNode(want)) morph(have, want);
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}
