// Theme and language, kept in this browser.
import { theme, type Theme } from "./store";
import { language, t, type Language } from "./strings";

export const Preferences = () => (
  <div class="preferences">
    <label>
      <span>{t("theme")}</span>
      <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
        <option value="system">{t("themeSystem")}</option>
        <option value="light">{t("themeLight")}</option>
        <option value="dark">{t("themeDark")}</option>
      </select>
    </label>
    <label>
      <span>{t("language")}</span>
      <select value={language.value} onChange={(event) => (language.value = event.currentTarget.value as Language)}>
        <option value="en">English</option>
        <option value="de">Deutsch</option>
      </select>
    </label>
  </div>
);
