// Charts: those over time, which the server draws and which the pointer and the keyboard read, and bars of numbers.

import { el } from "./elements.js";
import { readable } from "./reading.js";
import { duration, number } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const PHASES = ["plan", "stage", "merge"];

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function hinted(shape, words) {
  const title = svg("title", {});
  title.textContent = words;
  shape.append(title);
  return shape;
}

// values: a bar each, the newest last. when(index) says which stretch of time a bar is.
export function bars(values, label, when) {
  const [width, height, most] = [values.length * 6, 24, Math.max(...values, 1)];
  const shapes = values.flatMap((value, at) => {
    const tall = value ? Math.max(2, (value / most) * height) : 1;
    const bar = svg("rect", { x: at * 6, y: height - tall, width: 5, height: tall, class: value ? "bar" : "bar empty" });
    const ground = svg("rect", { x: at * 6, y: 0, width: 6, height, class: "hit" });
    return [bar, hinted(ground, `${when(at)}: ${number(value)}`)];
  });
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, ...shapes);
}

// How wide a chart is drawn. So many stand side by side as the style sheet's grid has columns.
export function chartWidth() {
  const [least, gap, border] = [440, 12, 26];
  const whole = document.getElementById("main").clientWidth;
  const beside = Math.max(1, Math.floor((whole + gap) / (least + gap)));
  return Math.max(280, Math.floor((whole - (beside - 1) * gap) / beside) - border);
}

// drawing: {name, title, says, looks, svg} as the API gives it. The arrows go from period to period.
export function chart(drawing) {
  const drawn = document.importNode(new DOMParser().parseFromString(drawing.svg, "image/svg+xml").documentElement, true);
  drawn.id = `chart ${drawing.name}`;
  const said = readable(drawn, drawing.name, [...drawn.querySelectorAll(".hit")], drawing.says, (area) => area.dataset.said);
  const legend = Object.entries(drawing.looks).map(([name, look]) => el("span", { class: "entry" }, el("span", { class: `key ${look}` }), name));
  return el("figure", { class: `card chart ${drawing.name}` }, el("figcaption", {}, el("strong", {}, drawing.title), legend), drawn, said);
}

// What a run took: its phases, and what it waited beyond them, in Airflow mostly for tasks to start.
function parts(run) {
  const phases = Object.entries(run.phases);
  const waited = run.started_us ? (run.ended_us - run.started_us) / 1e6 - phases.reduce((sum, [, seconds]) => sum + seconds, 0) : 0;
  return waited > 0.05 ? [...phases, ["waiting", waited]] : phases;
}

// runs: {batch, phases, started_us, ended_us}, the newest first; href(run) is where a bar leads.
export function phasesOf(runs, label, href) {
  const shown = runs.filter((run) => Object.keys(run.phases).length).slice(0, 60).toReversed();
  if (!shown.length) return null;
  const took = (run) => parts(run).reduce((sum, [, seconds]) => sum + seconds, 0);
  const [step, height, most] = [16, 96, Math.max(...shown.map(took), 0.001)];
  const columns = shown.map((run, at) => {
    let y = height;
    const stack = parts(run).map(([name, seconds]) => {
      const tall = (seconds / most) * height;
      y -= tall;
      return svg("rect", { x: at * step + 2, y, width: step - 4, height: tall, class: `phase-${PHASES.indexOf(name) + 1}` });
    });
    const words = parts(run).map(([name, seconds]) => `${name} ${duration(seconds)}`).join(", ");
    const ground = svg("rect", { x: at * step, y: 0, width: step, height, class: "hit" });
    return svg("a", { href: href(run), "aria-label": `batch ${run.batch}: ${words}` }, ...stack, hinted(ground, `batch ${run.batch}: ${words}`));
  });
  const [width, scale] = [Math.max(shown.length, 20) * step, svg("text", { x: 0, y: 10, class: "scale" })];
  scale.textContent = duration(most);
  const drawn = svg("svg", { viewBox: `0 -14 ${width + 4} ${height + 14}`, width: width + 4, height: height + 14, role: "group", "aria-label": label }, ...columns);
  scale.setAttribute("y", "-3");
  drawn.append(scale, svg("line", { x1: 0, y1: height, x2: width, y2: height, class: "axis" }));
  const figure = document.createElement("figure");
  const legend = document.createElement("figcaption");
  for (const name of [...new Set(shown.flatMap((run) => parts(run).map(([name]) => name)))]) {
    const key = document.createElement("span");
    key.className = `key phase-${PHASES.indexOf(name) + 1}`;
    legend.append(key, name);
  }
  figure.className = "wide chart";
  figure.append(legend, drawn);
  return figure;
}
