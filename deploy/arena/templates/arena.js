"use strict";
const { arena, pairs } = JSON.parse(document.getElementById("data").textContent);
const store = `marble-arena-${arena}`;
const at = (id) => document.getElementById(id);

// Votes outlive the page where the browser allows it; where it does not, they last as long as the page.
function load() {
  try {
    const kept = JSON.parse(localStorage.getItem(store));
    if (kept && kept.voter && kept.votes) return kept;
  } catch { /* no storage, or not ours: begin anew */ }
  const digits = crypto.getRandomValues(new Uint8Array(8));
  return { voter: Array.from(digits, (d) => d.toString(16).padStart(2, "0")).join(""), votes: {} };
}
function keep() {
  try {
    localStorage.setItem(store, JSON.stringify(state));
  } catch {
    at("unkept").hidden = false;
  }
}

const state = load();
const firstOpen = () => {
  const open = pairs.findIndex((pair) => !(pair.pair in state.votes));
  return open < 0 ? pairs.length : open;
};
let index = firstOpen();
let since = performance.now();

function show() {
  const over = index >= pairs.length;
  const count = pairs.filter((pair) => pair.pair in state.votes).length;
  at("voting").hidden = over;
  at("done").hidden = !over;
  at("progress").style.width = `${(100 * count) / pairs.length}%`;
  at("count").textContent = over ? `${count} of ${pairs.length} judged` : `${index + 1} of ${pairs.length}`;
  at("back").disabled = index === 0;
  if (over) {
    at("summary").textContent = `You judged ${count} of ${pairs.length} pairs. Save the votes and send the file to whoever asked you.`;
    at("text").value = exported();
  } else {
    const pair = pairs[index];
    const choice = (state.votes[pair.pair] || {}).choice;
    at("prompt").textContent = pair.prompt;
    for (const side of ["left", "right"]) {
      const image = at(`${side}-image`);
      image.onload = () => image.classList.toggle("small", image.naturalWidth <= 128);
      image.src = pair[side];
      image.alt = `${side === "left" ? "First" : "Second"} picture for: ${pair.prompt}`;
      at(side).classList.toggle("chosen", choice === side);
    }
    at("tie").classList.toggle("main", choice === "tie");
  }
  since = performance.now();
}

function vote(choice) {
  if (index >= pairs.length) return;
  const seconds = Math.round((performance.now() - since) / 100) / 10;
  state.votes[pairs[index].pair] = { choice, seconds };
  keep();
  index += 1;
  show();
}

function back() {
  if (index > 0) {
    index -= 1;
    show();
  }
}

function exported() {
  const votes = pairs.filter((pair) => pair.pair in state.votes).map((pair) => ({ pair: pair.pair, ...state.votes[pair.pair] }));
  const head = { format: "marble-arena-votes", version: 1, arena, voter: state.voter, exported: new Date().toISOString() };
  return JSON.stringify({ ...head, votes }, null, 1);
}

function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([exported()], { type: "application/json" }));
  link.download = `votes-${arena}-${state.voter}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const keys = {
  ArrowLeft: () => vote("left"), "1": () => vote("left"),
  ArrowRight: () => vote("right"), "2": () => vote("right"),
  ArrowDown: () => vote("tie"), "0": () => vote("tie"),
  ArrowUp: back, Backspace: back,
  s: save,
};
document.addEventListener("keydown", (event) => {
  const action = keys[event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "TEXTAREA") return;
  event.preventDefault();
  if (!event.repeat) action();
});
at("left").onclick = () => vote("left");
at("right").onclick = () => vote("right");
at("tie").onclick = () => vote("tie");
at("back").onclick = at("again").onclick = back;
at("save").onclick = at("save-now").onclick = save;
show();
