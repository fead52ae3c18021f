// Texts of the page whose contrast with what is behind them is below WCAG AA: 4.5, or 3 for large ones.
//
// Colours are drawn and read back, because styles name them in many ways.
const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const mixed = (layers) => {
  pixel.clearRect(0, 0, 1, 1);
  for (const layer of layers) {
    pixel.fillStyle = layer;
    pixel.fillRect(0, 0, 1, 1);
  }
  return [...pixel.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const luminance = (colour) => {
  const [r, g, b] = colour.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  const layers = [];
  for (let here = element; here; here = here.parentElement) layers.unshift(getComputedStyle(here).backgroundColor);
  return ["white", ...layers];
};
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const weak = [];
for (let text = texts.nextNode(); text; text = texts.nextNode()) {
  const element = text.parentElement;
  if (!text.textContent.trim() || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
  const style = getComputedStyle(element);
  const layers = behind(element);
  const inks = element.closest("svg") ? style.fill : style.color;
  const [a, b] = [luminance(mixed([...layers, inks])), luminance(mixed(layers))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (contrast < (large ? 3 : 4.5)) weak.push(`${text.textContent.trim().slice(0, 40)}: ${contrast.toFixed(2)}`);
}
return weak;
