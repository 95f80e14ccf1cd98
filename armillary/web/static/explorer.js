"use strict";
// Everything here makes a page quicker to use; without it, the same forms and links do the same work.

function filter() {
  const form = document.getElementById("filters");
  if (!form || !document.querySelector(".questions")) return;
  const apply = () => {
    const words = form.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    const lines = document.querySelectorAll(".questions li");
    for (const line of lines) {
      const has = (name) => !form[name].value || line.dataset[name].split("|").includes(form[name].value);
      line.hidden = !(words.every((word) => line.dataset.text.includes(word)) && has("field") && has("verdict") && has("kind"));
      shown += line.hidden ? 0 : 1;
    }
    for (const section of document.querySelectorAll("section.field")) section.hidden = !section.querySelector("li:not([hidden])");
    document.getElementById("count").textContent = `${shown} of ${lines.length} questions.`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
}

function sorting() {
  for (const table of document.querySelectorAll("table.sortable")) {
    table.querySelectorAll("th").forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const text = (row) => row.cells[column] ? row.cells[column].textContent.trim() : "";
        const order = (a, b) => text(a).localeCompare(text(b), undefined, { numeric: true });
        body.append(...[...body.rows].sort((a, b) => (down ? order(b, a) : order(a, b))));
      });
    });
  }
}

function estimating() {
  const form = document.getElementById("run-form");
  if (!form) return;
  const place = document.getElementById("estimate");
  let timer = 0, asked = 0;
  const ask = async () => {
    const mine = ++asked;
    const words = new FormData(form);
    for (const [name, value] of [...words]) if (value instanceof File && value.name) return (place.textContent = "");  // Files are sent once.
    place.textContent = "Counting …";
    try {
      const answer = await fetch(form.action, { method: "POST", body: words, headers: { accept: "application/json" } });
      const said = await answer.json();
      if (mine === asked) place.textContent = said.said || said.refused;
      place.classList.toggle("refused", !answer.ok);
    } catch { if (mine === asked) place.textContent = ""; }
  };
  form.addEventListener("change", () => { clearTimeout(timer); timer = setTimeout(ask, 400); });
}

function progress() {
  const place = document.getElementById("progress");
  if (!place || !place.dataset.events) return;
  const events = new EventSource(place.dataset.events);
  events.onmessage = (event) => {
    const now = JSON.parse(event.data);
    if (now.state !== "running") { events.close(); location.reload(); return; }  // The page with the report says how it ended.
    document.getElementById("done").textContent = now.done;
    document.getElementById("state").textContent = now.state;
    document.getElementById("bar").value = now.done;
    document.getElementById("failed").textContent = now.failed ? `, ${now.failed} failed` : "";
    document.getElementById("left").textContent = now.left ? `, about ${now.left} left` : "";
    const running = document.getElementById("running");
    running.replaceChildren(...now.running.map((one) => Object.assign(document.createElement("li"), { textContent: one })));
  };
}

function checking() {
  const form = document.getElementById("check-form");
  if (!form) return;
  const place = document.getElementById("checked");
  let timer = 0;
  form.text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (!form.text.value.trim()) return place.replaceChildren();
      const answer = await fetch(form.action, { method: "POST", body: new FormData(form), headers: { accept: "application/json" } });
      if (!answer.ok) return;
      const said = await answer.json();
      const faults = said.faults.map((fault) => Object.assign(document.createElement("p"), { className: "refused", textContent: fault }));
      place.replaceChildren(...faults);
      if (said.drawing) {
        // The server escapes every text in the picture; parsed as XML, it cannot bring a script or load anything.
        const picture = new DOMParser().parseFromString(said.drawing.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" '), "image/svg+xml");
        place.append(document.importNode(picture.documentElement, true));
      }
    }, 500);
  });
}

for (const part of [filter, sorting, estimating, progress, checking]) part();
