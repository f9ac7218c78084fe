// Pictures whose parts the pointer and the arrow keys read: what one says is below.

import { el } from "./elements.js";

const read = new Map(); // by a picture's name: the part that was read last

// says: what is below while no part is read. words: of a part. vertical: how far the arrows up and down go.
export function readable(picture, name, areas, says, words, vertical = 0) {
  const said = el("output", { class: "said", "aria-live": "polite" }, says);

  function show(at) {
    areas.forEach((area, index) => area.classList.toggle("read", index === at));
    said.textContent = at === null ? says : words(areas[at]);
    if (at === null) read.delete(name);
    else read.set(name, at);
  }

  function step(event) {
    const last = areas.length - 1;
    const forward = ["ArrowRight", "ArrowDown"].includes(event.key);
    const at = read.get(name) ?? (forward ? -1 : areas.length);
    const [across, down] = vertical ? [vertical, 1] : [1, 0];
    const to = { ArrowLeft: at - across, ArrowRight: at + across, ArrowUp: at - down, ArrowDown: at + down, Home: 0, End: last, Escape: null }[event.key];
    if (to === undefined || (!vertical && ["ArrowUp", "ArrowDown"].includes(event.key))) return;
    event.preventDefault();
    show(to === null ? null : Math.min(last, Math.max(0, to)));
  }

  picture.setAttribute("tabindex", "0");
  picture.addEventListener("keydown", step);
  picture.addEventListener("blur", () => show(null));
  picture.addEventListener("pointermove", (event) => areas.includes(event.target) && show(areas.indexOf(event.target)));
  picture.addEventListener("pointerleave", () => picture === document.activeElement || show(null));
  if (read.has(name)) show(Math.min(read.get(name), areas.length - 1));
  return said;
}
