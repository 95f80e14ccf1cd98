"use strict";
for (const holder of document.querySelectorAll(".plot")) {
  const figure = JSON.parse(document.getElementById(holder.id + "-data").textContent);
  const narrow = window.innerWidth < 600;
  if (narrow) {
    figure.layout.font.size = 11;
    const title = figure.layout.title;
    if (title && title.text) { title.font = { size: 13 }; title.text = title.text.replace(/<br>/g, " ").replace(/(.{1,44})(\s|$)/g, "$1<br>"); }
  }
  Plotly.newPlot(holder, figure.data, figure.layout, { responsive: true, displayModeBar: false });
}
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = Array.from(body.rows);
      const key = row => { const text = row.cells[column].textContent; const n = Number(text); return text !== "" && !Number.isNaN(n) ? n : text; };
      rows.sort((a, b) => { const x = key(a), y = key(b); const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)); return down ? -order : order; });
      body.append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); } });
  });
}
