// Applies the reader's theme before anything is drawn.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* without storage, follow the browser's theme */ }
