// The dashboard's own script: fetches what changes again when the stream says so, and counts times down.
//
// Without it every page is readable and says what was true when it was made. It rests while the page is hidden, and when
// there is no stream it asks every few seconds.
"use strict";

(() => {
  const live = document.getElementById("live");
  const pulse = document.getElementById("pulse");
  if (!live) return;

  // Also with a stream: times pass without anything happening.
  const LOOK_EVERY = 5000;
  // Many events at once are one look, and a busy server is looked at once a second.
  const LOOK_LATER = 200;
  const LOOK_PAUSE = 1000;
  const STREAM_AGAIN = 15000;

  let stream = null;
  let streamTimer = 0;
  let lookTimer = 0;
  let looked = 0;
  let skew = 0;
  let seenClock = "";

  const look = () => {
    if (document.hidden) return;
    looked = Date.now();
    htmx.trigger(live, "quell:refresh");
  };

  const lookSoon = () => {
    if (lookTimer) return;
    const later = Math.max(LOOK_LATER, LOOK_PAUSE - (Date.now() - looked));
    lookTimer = setTimeout(() => {
      lookTimer = 0;
      look();
    }, Math.min(later, LOOK_PAUSE));
  };

  const show = (state, word) => {
    if (!pulse) return;
    pulse.hidden = false;
    pulse.className = "pulse " + state;
    const text = pulse.querySelector(".word");
    if (text && text.textContent !== word) text.textContent = word;
  };

  const open = () => {
    clearTimeout(streamTimer);
    if (stream || document.hidden) return;
    if (!window.EventSource) return show("slow", "every 5s");
    stream = new EventSource("/ui/stream");
    stream.onopen = () => show("on", "live");
    for (const name of ["changed", "transition", "gap"]) stream.addEventListener(name, lookSoon);
    stream.onerror = () => {
      show("slow", "every 5s");
      // The browser comes back by itself, unless it was refused.
      if (stream && stream.readyState === EventSource.CLOSED) {
        close();
        streamTimer = setTimeout(open, STREAM_AGAIN);
      }
    };
  };

  const close = () => {
    clearTimeout(streamTimer);
    if (stream) stream.close();
    stream = null;
  };

  const distance = (seconds) => {
    const two = (n) => String(n).padStart(2, "0");
    const minutes = Math.floor(seconds / 60);
    const hours = Math.floor(seconds / 3600);
    if (minutes === 0) return seconds + "s";
    if (hours === 0) return minutes + "m" + two(seconds % 60) + "s";
    if (hours < 48) return hours + "h" + two(minutes % 60) + "m";
    return Math.floor(hours / 24) + "d" + two(hours % 24) + "h";
  };

  // The store's clock decides, as far as the last answer tells it.
  const count = () => {
    const clock = document.getElementById("clock");
    if (clock && clock.dataset.now !== seenClock) {
      seenClock = clock.dataset.now;
      skew = Number(seenClock) - Date.now();
    }
    const now = Date.now() + skew;
    for (const time of live.querySelectorAll("time[data-at]")) {
      const left = Number(time.dataset.at) - now;
      const text = left > 0
        ? "in " + distance(Math.floor(left / 1000))
        : distance(Math.floor(-left / 1000)) + " ago";
      if (time.textContent !== text) time.textContent = text;
    }
  };

  live.addEventListener("htmx:after:swap", () => {
    count();
    if (stream && stream.readyState === EventSource.OPEN) show("on", "live");
  });
  // What is shown stays, and is marked as old.
  live.addEventListener("htmx:error", () => show("slow", "no answer"));
  live.addEventListener("htmx:response:error", (event) => {
    const status = event.detail && event.detail.ctx && event.detail.ctx.response.status;
    // A login that has ended leads to the login page, which leads back.
    if (status === 401) location.reload();
    else show("slow", "no answer");
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      show("off", "paused");
    } else {
      look();
      open();
    }
  });
  window.addEventListener("pagehide", close);
  // A page that the browser kept and shows again.
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) {
      look();
      open();
    }
  });

  setInterval(look, LOOK_EVERY);
  setInterval(count, 1000);
  count();
  open();
})();

// The menu of the bar closes when somebody goes elsewhere.
(() => {
  const more = document.querySelector(".bar .more");
  if (!more) return;
  document.addEventListener("click", (event) => {
    if (more.open && !more.contains(event.target)) more.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && more.open) {
      more.open = false;
      more.querySelector("summary").focus();
    }
  });
})();
