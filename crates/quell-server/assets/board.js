// What tables and buttons do beyond plain HTML: countdowns that run, ticks that stay, copying, and keys.
//
// Everything here is a convenience: without it pages say and do the same, with more clicks.
"use strict";

(() => {
  const root = document.documentElement;
  const live = document.getElementById("live");
  root.classList.add("has-script");

  // A countdown begins anew with each event, and an event that only prolongs a window wakes nobody: so it is looked often.
  const DRAW_EVERY = 200;
  const LOOK_EVERY = 1000;

  let skew = 0;
  let seenClock = "";

  const now = () => {
    const clock = document.getElementById("clock");
    if (clock && clock.dataset.now !== seenClock) {
      seenClock = clock.dataset.now;
      skew = Number(seenClock) - Date.now();
    }
    return Date.now() + skew;
  };

  const width = (part, whole) => String(whole > 0 ? Math.round(10000 * Math.min(1, Math.max(0, part / whole))) : 0);

  const draw = () => {
    const at = now();
    for (const drawing of document.querySelectorAll("svg.countdown")) {
      const { full, due, opened, cap } = drawing.dataset;
      drawing.querySelector(".left").setAttribute("width", width(due - at, due - full));
      drawing.querySelector(".gone").setAttribute("width", width(at - opened, cap - opened));
    }
  };

  const look = () => {
    if (live && !document.hidden && live.querySelector("svg.countdown")) htmx.trigger(live, "quell:refresh");
  };

  // Ticks outlive the fetching of the table, also of rows that are on another page by then.
  const ticked = new Set();
  const boxes = () => document.querySelectorAll("input[name=lane][form=bulk]");

  const count = () => {
    const told = document.getElementById("ticked");
    const shown = [...boxes()].filter((box) => box.checked).length;
    if (told) told.textContent = shown ? "(" + shown + ")" : "";
  };

  const restore = () => {
    for (const box of boxes()) box.checked = ticked.has(box.value);
    count();
  };

  document.addEventListener("change", (event) => {
    const box = event.target;
    if (!(box instanceof HTMLInputElement) || box.name !== "lane") return;
    if (box.checked) ticked.add(box.value);
    else ticked.delete(box.value);
    count();
  });

  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element && event.target.closest("[data-copy]");
    if (!button) return;
    const text = button.parentElement.querySelector(".command").textContent;
    const told = (word) => {
      button.textContent = word;
      setTimeout(() => (button.textContent = "Copy"), 2000);
    };
    // Browsers let only pages that came over TLS, or from this machine, copy by themselves.
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => told("Copied"), () => told("Not allowed"));
    else told("Select it");
  });

  // `/` goes to the filter, `j` and `k` to the next and the previous row, `x` ticks it.
  const rowLinks = () => [...document.querySelectorAll("#live tbody th a")];
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.closest("input, textarea, select");
    if (event.ctrlKey || event.metaKey || event.altKey || (typing && typing.type !== "checkbox")) return;
    const here = document.activeElement;
    const links = rowLinks();
    const row = here && here.closest("#live tbody tr");
    const place = links.findIndex((link) => row && row.contains(link));
    if (event.key === "/") {
      const field = document.querySelector("[data-focus='/']");
      if (field) field.focus();
      else return;
    } else if ((event.key === "j" || event.key === "k") && links.length) {
      const next = event.key === "j" ? place + 1 : place < 0 ? links.length - 1 : place - 1;
      links[Math.min(links.length - 1, Math.max(0, next))].focus();
    } else if (event.key === "x" && row) {
      const box = row.querySelector("input[name=lane]");
      if (!box) return;
      box.click();
    } else {
      return;
    }
    event.preventDefault();
  });

  if (live) {
    live.addEventListener("htmx:after:swap", () => {
      restore();
      draw();
    });
  }
  // A page that the browser kept has its boxes as they were left.
  window.addEventListener("pageshow", () => {
    for (const box of boxes()) if (box.checked) ticked.add(box.value);
    count();
  });
  setInterval(draw, DRAW_EVERY);
  setInterval(look, LOOK_EVERY);
  draw();
})();
