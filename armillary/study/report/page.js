"use strict";
const wrapped = (text, width) => text.replace(/<br>/g, " ").replace(new RegExp("(.{1," + Math.max(20, Math.floor(width / 8.2)) + "})(\\s|$)", "g"), "$1<br>").replace(/<br>$/, "");
const draw = () => {
  for (const holder of document.querySelectorAll(".plot")) {
    const figure = JSON.parse(document.getElementById(holder.id + "-data").textContent);
    const narrow = holder.clientWidth < 600;
    if (narrow) figure.layout.font.size = 11;
    const title = figure.layout.title;
    if (title && title.text) {
      title.font = { size: narrow ? 13 : 16 };
      title.text = wrapped(title.text, holder.clientWidth * (narrow ? 1.2 : 1));
      figure.layout.margin.t = 26 + (narrow ? 17 : 20) * title.text.split("<br>").length;
    }
    Plotly.newPlot(holder, figure.data, figure.layout, { responsive: true, displayModeBar: false });
  }
};
const unpack = async packed => {
  const bytes = Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};
const library = document.getElementById("plotly");
if (library) {
  unpack(library.textContent).then(text => {
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
    draw();
    let width = window.innerWidth;
    window.addEventListener("resize", () => { if (Math.abs(window.innerWidth - width) > 80) { width = window.innerWidth; draw(); } });
  }).catch(error => {
    for (const holder of document.querySelectorAll(".plot")) holder.textContent = "This browser cannot unpack the plots (" + error.message + "); the tables below have the same figures.";
  });
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
