// The playground's own script: draws arrivals with the pointer, moves the window with sliders, and asks the server again what
// would come of it. It computes nothing itself; without it the form does the same.
"use strict";

(() => {
  const form = document.getElementById("trial");
  const result = document.getElementById("rehearsal");
  const arrivals = document.getElementById("arrivals");
  if (!form || !result) return;

  const ASK_LATER = 120;
  const MOST = 400;
  let timer = 0;
  let asked = 0;

  const address = () => {
    const pairs = new URLSearchParams(new FormData(form));
    for (const [name, text] of [...pairs]) if (text === "" && name !== "arrivals") pairs.delete(name);
    return form.action + "?" + pairs;
  };

  const ask = async () => {
    const mine = ++asked;
    const place = address();
    try {
      const answer = await fetch(place, { headers: { "HX-Request": "true" } });
      if (answer.status === 401) return location.reload();
      const text = await answer.text();
      // A slow answer to an earlier question is not shown over a later one.
      if (mine !== asked || !answer.ok) return;
      result.innerHTML = text;
      history.replaceState(null, "", place);
      ready();
    } catch {
      // The server is away for a moment; what is shown stays.
    }
  };

  const askSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(ask, ASK_LATER);
  };

  // Only the fields that the chosen window has.
  const choose = () => {
    const window = document.getElementById("window").value;
    for (const label of form.querySelectorAll("[data-for]")) label.hidden = label.dataset.for !== window;
  };

  // A slider beside a field of time: from 100 ms to an hour, each step a tenth more than the one before.
  const LOW = 100;
  const HIGH = 3600000;
  const STEPS = 200;
  const write = (ms) => {
    if (ms < 10000) return ms + "ms";
    return Math.round(ms / 1000) + "s";
  };
  const read = (text) => {
    const units = { ms: 1, s: 1000, m: 60000, h: 3600000 };
    let ms = 0;
    for (const [, number, unit] of text.matchAll(/([\d.]+)\s*(ms|s|m|h)/g)) ms += Number(number) * units[unit];
    return ms;
  };
  const place = (ms) => Math.round((STEPS * Math.log(Math.max(ms, LOW) / LOW)) / Math.log(HIGH / LOW));
  for (const name of ["quiet", "max_wait", "fixed"]) {
    const field = document.getElementById(name);
    const slider = document.createElement("input");
    slider.type = "range";
    slider.min = 0;
    slider.max = STEPS;
    slider.value = place(read(field.value));
    slider.setAttribute("aria-label", field.parentElement.firstChild.textContent.trim());
    slider.addEventListener("input", () => {
      const ms = LOW * Math.pow(HIGH / LOW, slider.value / STEPS);
      const step = ms < 1000 ? 50 : ms < 10000 ? 100 : 1000;
      field.value = write(Math.round(ms / step) * step);
      askSoon();
    });
    field.addEventListener("input", () => (slider.value = place(read(field.value))));
    field.after(slider);
  }

  // Drawing: a press is an arrival, and a stroke is many.
  let drawing = false;
  let last = -1;
  const add = (event, svg) => {
    const box = svg.getBoundingClientRect();
    const span = Number(svg.dataset.span);
    const at = Math.round(((event.clientX - box.left) / box.width) * span);
    if (at < 0 || at > span || Math.abs(at - last) < span / 150) return;
    const known = arrivals.value.split(/[\s,;]+/).filter(Boolean);
    if (known.length >= MOST) return;
    last = at;
    known.push(String(at / 1000));
    arrivals.value = known.join(" ");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const x = (at / span) * svg.viewBox.baseVal.width;
    for (const [name, value] of [["class", "tick"], ["x1", x], ["y1", 8], ["x2", x], ["y2", 36]]) line.setAttribute(name, value);
    svg.append(line);
  };
  result.addEventListener("pointerdown", (event) => {
    const svg = event.target.closest("#timeline");
    if (!svg || !arrivals || event.button !== 0) return;
    event.preventDefault();
    drawing = true;
    last = -1;
    add(event, svg);
  });
  result.addEventListener("pointermove", (event) => {
    const svg = event.target.closest("#timeline");
    if (drawing && svg) add(event, svg);
  });
  window.addEventListener("pointerup", () => {
    if (!drawing) return;
    drawing = false;
    askSoon();
  });

  // What only works with a script is only shown with it.
  const ready = () => {
    const copy = document.getElementById("copy");
    if (copy) copy.hidden = false;
    const svg = document.getElementById("timeline");
    if (svg && arrivals) svg.classList.add("drawable");
  };
  result.addEventListener("click", async (event) => {
    const button = event.target.closest("#copy");
    if (!button) return;
    const from = document.getElementById("settings");
    try {
      await navigator.clipboard.writeText(from.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(from);
      button.textContent = "Selected";
    }
  });
  const clear = document.getElementById("clear");
  if (clear) {
    clear.hidden = false;
    clear.addEventListener("click", () => {
      arrivals.value = "";
      ask();
    });
  }

  form.addEventListener("input", (event) => {
    choose();
    if (event.target.type !== "range") askSoon();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  choose();
  ready();
})();
