// Airflow's choice of light or dark, before anything is drawn: it keeps it under "theme", and "system" is the browser's.
(function () {
  "use strict";
  function follow() {
    var chosen = null;
    try {
      chosen = localStorage.getItem("theme");
    } catch (error) {
      // Where storage is forbidden the browser's own choice stays.
    }
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
  }
  follow();
  window.addEventListener("storage", follow);
})();
